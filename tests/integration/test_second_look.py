"""`python -m scripts.test`: what fails twice is a failure, what fails once is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_FAILS = "def test_{}():\n    assert False\n"
_FAILS_ONCE = """
from pathlib import Path
def test_once():
    mark = Path("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""


def _suite(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text("def test_good():\n    pass\n" + source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "scripts.test", "-p", "no:headrace", "-p", "no:randomly"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_what_fails_once_is_named(tmp_path: Path) -> None:
    ran = _suite(tmp_path, _FAILS_ONCE)
    assert ran.returncode == 0
    assert ran.stdout.endswith("unsteady, passed when run alone:\n  test_it.py::test_once\n")


def test_what_fails_twice_is_a_failure(tmp_path: Path) -> None:
    ran = _suite(tmp_path, _FAILS_ONCE + _FAILS.format("never"))
    assert ran.returncode == 1
    assert "unsteady" not in ran.stdout


@pytest.mark.parametrize("source", ["".join(_FAILS.format(n) for n in range(5)), "syntax error"])
def test_much_and_what_cannot_be_collected_is_not_run_again(tmp_path: Path, source: str) -> None:
    ran = _suite(tmp_path, source)
    assert ran.returncode in {1, 2}
    assert "once more" not in ran.stdout
