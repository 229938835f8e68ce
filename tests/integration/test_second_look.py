"""`python -m scripts.test`: what fails twice is a failure, what fails once is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_FAILS = "def test_{}():\n    assert False\n"
_FAILS_ONCE = """
from pathlib import Path
import pytest
@pytest.mark.xdist_group("some-group")
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


def test_what_fails_once_is_named(tmp_path: Path) -> None:
    ran = _suite(tmp_path, _FAILS_ONCE)
    assert ran.returncode == 0
    assert ran.stdout.endswith("unsteady, passed when run alone:\n  test_it.py::test_once\n")


def test_what_fails_twice_is_a_failure(tmp_path: Path) -> None:
    ran = _suite(tmp_path, _FAILS_ONCE + _FAILS.format("never"))
    assert ran.returncode == 1
    assert "unsteady" not in ran.stdout


def test_much_is_not_run_again(tmp_path: Path) -> None:
    ran = _suite(tmp_path, "".join(_FAILS.format(number) for number in range(5)))
    assert ran.returncode == 1
    assert "once more" not in ran.stdout


def test_what_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    ran = _suite(tmp_path, "syntax error")
    assert ran.returncode != 0
    assert "unsteady" not in ran.stdout
