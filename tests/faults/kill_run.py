"""A broker that is killed again and again under load, and the history of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from headrace.core.ids import TopicPartition
from tests.faults.load import Sender, TailReader, scan, wait_until
from tests.support.history import History, Outcome
from tests.support.history_checks import Violation, check
from tests.support.topics import Topics

SMALL_SEGMENT_BYTES = 20_000
ANSWERS_PER_ROUND = (20, 800)
# A quarter of the rounds kill the broker before it has said that it is ready.
START_IS_CUT_SHORT = 0.25


class Killable(Protocol):
    """A broker process, or a broker in this process."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> object: ...

    def kill(self) -> None: ...


class KillRun:
    """Three topics: acks=all, acks=all in segments that roll all the time, and acks=1."""

    def __init__(self, broker: Killable, seed: int, *, cut_starts: bool = True) -> None:
        self.history = History()
        self.broker = broker
        self._cut_starts = cut_starts
        self._draw = random.Random(seed)
        topics = Topics(broker.bootstrap_servers)
        topics.create("all", 2)
        small = {"internal.segment.bytes": str(SMALL_SEGMENT_BYTES), "index.interval.bytes": "400"}
        topics.create("rolling", 2, small)
        topics.create("one", 2)
        self.partitions = [
            TopicPartition(topic, index) for topic in ("all", "rolling", "one") for index in (0, 1)
        ]
        self._senders: list[Sender] = []
        self._tail_readers: list[TailReader] = []

    @property
    def _clients(self) -> Sequence[Sender | TailReader]:
        return (*self._senders, *self._tail_readers)

    @property
    def _answered(self) -> int:
        return sum(sender.answered for sender in self._senders)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Clients at work; at the end they have sent, been told and read all there is."""
        servers = self.broker.bootstrap_servers
        durable, weak = self.partitions[:4], self.partitions[4:]
        self._senders = [
            Sender(self.history, servers, "first", durable, acks=-1),
            Sender(self.history, servers, "second", durable, acks=-1),
            Sender(self.history, servers, "third", weak, acks=1),
        ]
        self._tail_readers = [
            TailReader(self.history, servers, "reader", self.partitions),
            TailReader(self.history, servers, "another", self.partitions),
        ]
        for client in self._clients:
            client.start()
        # librdkafka asks for a producer id twice a second; a broker that lives for less than that
        # can miss it for a minute.
        wait_until(lambda: all(each.answered for each in self._senders), "everybody's first answer")
        try:
            yield
        finally:
            for sender in self._senders:
                sender.stop()
            ends = {each: found.end for each, found in scan(servers, self.partitions).items()}
            for reader in self._tail_readers:
                reader.stop_at(ends)

    def wait_for_answers(self, count: int) -> None:
        """Let the load go on until so many more sends were acknowledged, or a client gave up."""
        target = self._answered + count
        wait_until(
            lambda: self._answered >= target or bool(self.complaints()),
            f"{self._answered} of {target} answers",
        )

    def kill_and_restart(self) -> None:
        """One round: some progress, a SIGKILL at a moment nobody chose, and back again."""
        self.wait_for_answers(self._draw.randrange(*ANSWERS_PER_ROUND))
        self.history.crashed(power_cut=False)
        self.broker.kill()
        if self._cut_starts and self._draw.random() < START_IS_CUT_SHORT:
            self._kill_while_starting()
        self.broker.start()

    def _kill_while_starting(self) -> None:
        """Recovery itself must survive being killed."""
        timer = threading.Timer(self._draw.uniform(0.15, 0.5), self.broker.kill)
        timer.start()
        try:
            self.broker.start()
        except Exception:
            pass  # killed before it was ready
        finally:
            timer.join()
        self.broker.kill()

    def judge(self, data_dir: Path) -> list[Violation]:
        """Stop the broker and hold everything that was seen against the invariants."""
        found = scan(self.broker.bootstrap_servers, self.partitions)
        self.broker.stop()
        for partition, each in found.items():
            self.history.scanned(each.final(partition, data_dir))
        return check(self.history)

    def complaints(self) -> list[str]:
        """What clients said that they should never have had to say."""
        return [f"{each.name}: {failure}" for each in self._clients for failure in each.failures]

    def figures(self) -> str:
        acked = self.history.count(Outcome.OK)
        unknown = self.history.count(Outcome.UNKNOWN)
        read = sum(len(each.records) for each in self.history.reads)
        return (
            f"{len(self.history.crashes)} kills, {acked} records acknowledged, "
            f"{unknown} unknown, {read} reads"
        )
