"""What holds for every test: groups skipped for want of a foreign tool are named at the end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.support.groups import SKIPPED_GROUPS, in_ci, skipped_groups
from tests.support.headlines import Headline, headlines, said_by

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background says so; what we start would inherit it, and Ctrl-C
    # could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--against kafka` points the client tests at Apache Kafka, to tell whose fault a miss is."""
    parser.addoption(
        "--against",
        choices=["headrace", "kafka"],
        default="headrace",
        help="which broker the tests with real clients talk to",
    )


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that ran inside the test process logs to a stderr that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def headline(record_property: Callable[[str, object], None]) -> Headline:
    """Say one sentence that the end of the run shows: figures of a comparison, mostly."""
    return said_by(record_property)


def _skipped(config: pytest.Config) -> dict[str, tuple[int, str]]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    return skipped_groups(reporter.stats.get("skipped", [])) if reporter else {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a group that could not run is a failure; only the process that reports decides."""
    if in_ci() and not hasattr(session.config, "workerinput") and _skipped(session.config):
        session.exitstatus = SKIPPED_GROUPS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    """After everything else, so that the last lines say what did not run."""
    yield
    sentences = headlines(terminalreporter.stats.get("passed", []))
    if sentences:
        terminalreporter.section("figures")
        for sentence in sentences:
            terminalreporter.line(sentence)
    groups = _skipped(terminalreporter.config)
    if not groups:
        return
    terminalreporter.section("skipped groups", red=in_ci(), yellow=not in_ci())
    for group, (count, why) in groups.items():
        terminalreporter.line(f"{group}: {count} tests skipped: {why}")
    if in_ci():
        terminalreporter.line("CI: a skipped group is a failure")
