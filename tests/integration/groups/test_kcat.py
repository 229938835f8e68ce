"""kcat's balanced consumers: processes that share, leave, crash and stand still."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.groups.conftest import FilledMaker
from tests.support import tools
from tests.support.brokers import BrokerProcess
from tests.support.groups import required
from tests.support.records import fill, value

_PATIENCE_SECONDS = 30


class Kcat:
    """One balanced consumer as a process; prints a line for each record."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, output: Path) -> None:
        self._output = output
        options = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "1000",
            "heartbeat.interval.ms": "100",
            "auto.commit.interval.ms": "100",
            "fetch.wait.max.ms": "20",
        }
        settings = [word for name, each in options.items() for word in ("-X", f"{name}={each}")]
        with output.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    str(required(tools.kcat)),
                    "-b",
                    broker.bootstrap_servers,
                    *settings,
                    "-u",
                    "-f",
                    "%s\n",
                    "-G",
                    group,
                    topic,
                ],
                stdout=out,
                stderr=subprocess.DEVNULL,
            )

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: int) -> None:
        if self.process.poll() is None:
            self.signal(number)
            self.process.wait(_PATIENCE_SECONDS)


KcatMaker = Callable[[str], Kcat]


@pytest.fixture
def kcat(broker: BrokerProcess, group: str, tmp_path: Path) -> Iterator[KcatMaker]:
    made: list[Kcat] = []

    def start(topic: str) -> Kcat:
        made.append(Kcat(broker, group, topic, tmp_path / f"kcat-{len(made)}"))
        return made[-1]

    yield start
    for each in made:
        each.end(signal.SIGKILL)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


class _Feed:
    """Adds a record to each partition again and again until both members have read some."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int) -> None:
        self._servers = broker.bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self.written = 0

    def more(self) -> None:
        fill(self._servers, self._topic, self._partitions, 1, first=self.written)
        self.written += 1

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def fed() -> bool:
            self.more()
            return condition()

        _until(fed, what)

    def everything(self) -> set[str]:
        return {
            value(partition, offset).decode()
            for partition in range(self._partitions)
            for offset in range(self.written)
        }


def _until_all_read(feed: _Feed, *members: Kcat) -> None:
    expected = feed.everything()

    def missed() -> set[str]:
        return expected - {line for each in members for line in each.lines()}

    _until(lambda: not missed(), f"everything to be read, but {sorted(missed())[:5]}")


@pytest.mark.parametrize("how", ["leaves", "crashes", "stands still"])
def test_another_member_takes_over_and_nothing_is_missed(
    broker: BrokerProcess, filled: FilledMaker, kcat: KcatMaker, how: str
) -> None:
    topic = filled(2, 0)
    feed = _Feed(broker, topic, 2)
    first = kcat(topic)
    feed.until(lambda: bool(first.lines()), "the first member to read")
    second = kcat(topic)
    feed.until(lambda: bool(second.lines()), "the second member to read")
    number = {"leaves": signal.SIGTERM, "crashes": signal.SIGKILL, "stands still": signal.SIGSTOP}
    # kcat counts a record as read before it prints it: end it when it has nothing in hand.
    _until_all_read(feed, first, second)
    second.signal(number[how])
    if how == "leaves":
        second.process.wait(_PATIENCE_SECONDS)
    feed.more()
    _until_all_read(feed, first, second)
    if how == "stands still":
        second.signal(signal.SIGCONT)
        before = len(second.lines())
        feed.until(lambda: len(second.lines()) > before, "it to take part again")
        _until_all_read(feed, first, second)
