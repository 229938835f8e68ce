"""A pytest plugin: write down which tests failed, and how, as JSON.

`-p scripts.failed_tests --failed-tests FILE`. With pytest-xdist the process that reports writes,
whichever worker ran the test.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_FILE = "--failed-tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file to write."""
    parser.addoption(_FILE, type=Path, default=None, help="write the failed tests here, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that reports knows of all tests."""
    file = config.getoption(_FILE)
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailedTests(file))


class _FailedTests:
    def __init__(self, file: Path) -> None:
        self._file = file
        # Test to what pytest says of its first failure.
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(_test_of(report), report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, report.longreprtext)

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._failed))


def _test_of(report: pytest.TestReport) -> str:
    # Not the node id: under `--dist loadgroup` it ends with the name of the test's group.
    file, _, name = report.location
    return f"{file}::{name}" if file == report.nodeid.partition("::")[0] else report.nodeid
