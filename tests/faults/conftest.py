"""Data directories to spoil, made once and copied for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.stored import Stored, make_stored


@pytest.fixture(scope="session")
def _killed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return make_stored(tmp_path_factory.mktemp("stored") / "killed", killed=True)


@pytest.fixture(scope="session")
def _closed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return make_stored(tmp_path_factory.mktemp("stored") / "closed", killed=False)


@pytest.fixture
def killed(_killed: Stored, tmp_path: Path) -> Stored:
    """Left by a broker that was killed."""
    return _killed.copy(tmp_path / "killed")


@pytest.fixture
def closed(_closed: Stored, tmp_path: Path) -> Stored:
    """Left by a broker that was stopped."""
    return _closed.copy(tmp_path / "closed")


@pytest.fixture(params=["closed", "killed"])
def stored(
    request: pytest.FixtureRequest, _closed: Stored, _killed: Stored, tmp_path: Path
) -> Stored:
    """Both, one after the other."""
    template = _closed if request.param == "closed" else _killed
    return template.copy(tmp_path / "data")
