"""`python -m scripts.test`: what is tried twice, what is not, and what is written down of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_FAILS = "def test_{}():\n    assert False\n"
_FAILS_ONCE = """
from pathlib import Path
import pytest
@pytest.mark.xdist_group("some-group")
@pytest.mark.parametrize("value", ["a@b.c"])
def test_once(value):
    mark = Path("mark")
    seen = mark.exists()
    mark.touch()
    assert seen, "not\\nseen"
"""
_TEST = "tests/{}/test_it.py::test_once[a@b.c]"


def _run(tmp_path: Path, source: str, *, suite: str) -> subprocess.CompletedProcess[str]:
    directory = tmp_path / "tests" / suite
    directory.mkdir(parents=True)
    (directory / "test_it.py").write_text("def test_good():\n    pass\n" + source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "scripts.test", "-n", "1", "--dist", "loadgroup"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(_REPOSITORY),
            "PYTEST_ADDOPTS": "-p xdist",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each run would load all that is installed
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("suite", ["integration", "faults", "browser"])
def test_what_watches_processes_has_a_second_try_and_it_is_recorded(
    tmp_path: Path, suite: str
) -> None:
    ran = _run(tmp_path, _FAILS_ONCE, suite=suite)
    assert ran.returncode == 0
    test = _TEST.format(suite)
    assert ran.stdout.endswith(f"recorded in tests/unsteady.toml:\n  {test}\n")
    assert tomllib.loads((tmp_path / "tests/unsteady.toml").read_text()) == {
        "second_try": [
            {"test": test, "date": date.today(), "failure": "AssertionError: not"},
        ]
    }
    [kept] = (tmp_path / "build" / "unsteady").glob("*.txt")
    assert "assert seen" in kept.read_text()


@pytest.mark.parametrize("suite", ["unit", "property", "simulation", "differential", "docs"])
def test_what_is_deterministic_is_never_run_twice(tmp_path: Path, suite: str) -> None:
    ran = _run(tmp_path, _FAILS_ONCE, suite=suite)
    assert ran.returncode == 1
    assert ran.stdout.endswith(f"not tried again:\n  {_TEST.format(suite)}\n")
    assert not (tmp_path / "tests/unsteady.toml").exists()


def test_what_fails_twice_is_a_failure(tmp_path: Path) -> None:
    ran = _run(tmp_path, _FAILS_ONCE + _FAILS.format("never"), suite="faults")
    assert ran.returncode == 1
    assert "unsteady" not in ran.stdout


def test_much_is_not_tried_again(tmp_path: Path) -> None:
    failures = "".join(_FAILS.format(number) for number in range(5))
    ran = _run(tmp_path, failures, suite="faults")
    assert ran.returncode == 1
    assert "second try" not in ran.stdout


def test_what_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_other.py").write_text("syntax error")
    ran = _run(tmp_path, _FAILS_ONCE, suite="faults")
    assert ran.returncode != 0
    assert "unsteady" not in ran.stdout
