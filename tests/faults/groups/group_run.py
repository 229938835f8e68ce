"""A group of processes at work while its broker and its members die or stand still."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Assigned

from headrace.core.ids import TopicPartition
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from tests.faults.groups.watcher import Watcher
from tests.faults.load import consumer
from tests.support.group_checks import check_group
from tests.support.group_history import (
    Commit,
    Final,
    GroupHistory,
    Partition,
    now,
    read_member_log,
)
from tests.support.group_members import STYLES
from tests.support.group_wire import GroupWire, commit_request
from tests.support.history_checks import Violation
from tests.support.topics import Topics

PARTITIONS = 6
TOPIC = "work"
GROUP = "workers"
SESSION_MS = 1_000
# Detection of the dead, one rebalance with everybody's answer, and reading what piled up.
BOUND_SECONDS = 20.0
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
}
_RECONNECT = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "metadata.recovery.strategy": "none",
}
Written = Mapping[Partition, Sequence[int]]


class Killable(Protocol):
    """A broker process, or a broker in this process."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def port(self) -> int: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class MemberProcess:
    """One member and its journal."""

    def __init__(self, name: str, settings: dict[str, object], directory: Path) -> None:
        self.name = name
        self.journal = directory / f"{name}.jsonl"
        self.ended: int | None = None
        command = [sys.executable, "-m", "tests.faults.groups.member", json.dumps(settings)]
        self._process = subprocess.Popen([*command, str(self.journal)])

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self, number: int) -> None:
        """End it and remember when it was surely gone."""
        if self.ended is None:
            self._process.send_signal(number)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
            self.ended = now()

    def has_written(self, kind: str) -> int:
        """How many events of a kind it has noted."""
        if not self.journal.exists():
            return 0
        return self.journal.read_bytes().count(f'"kind": "{kind}"'.encode())


class GroupRun:
    """One topic, one group, one writer; faults are up to the test."""

    def __init__(
        self,
        broker: Killable,
        style: str,
        seed: int,
        directory: Path,
        *,
        bound_seconds: float = BOUND_SECONDS,
    ) -> None:
        self.broker = broker
        self._bound_seconds = bound_seconds
        self.history = GroupHistory()
        self.kills = 0
        self._style = style
        self._directory = directory
        self._draw = random.Random(seed)
        self._members: list[MemberProcess] = []
        self._written = 0
        self._stopping = threading.Event()
        Topics(broker.bootstrap_servers).create(TOPIC, PARTITIONS)
        self._commit_the_start()

    def _commit_the_start(self) -> None:
        """Everybody begins at a commit: a member that finds none begins nowhere.

        librdkafka may also fetch for a partition that is taken away while it looks up the
        earliest offset, and hand out those records when it gets the partition again.
        """
        began = now()
        wire = GroupWire(self.broker.port)
        wire.find(GROUP)
        starts = dict.fromkeys(range(PARTITIONS), 0)
        answer = wire.ask(commit_request(GROUP, TOPIC, starts), 9, OffsetCommitResponse)
        assert {each.error_code for each in answer.topics[0].partitions} == {0}
        wire.close()
        for index in starts:
            commit = Commit("operator", (TOPIC, index), began, now(), 0, ok=True)
            self.history.commits.append(commit)

    @contextmanager
    def work(self, members: int = 3) -> Iterator[None]:
        """Writer, watcher and members at work; afterwards all is healed, read and recorded."""
        watcher = Watcher(self.history, self.broker.port, GROUP, TOPIC, PARTITIONS)
        writer = threading.Thread(target=self._write, name="writer", daemon=True)
        try:
            for _ in range(members):
                self.start_member()
            writer.start()
            watcher.start()
            self.wait_for_commits(10)
            yield
            self._stopping.set()
            writer.join()
            started = time.monotonic()
            written = timestamps(self.broker.bootstrap_servers)
            owners = self._wait_until_settled(written, started)
            took = time.monotonic() - started
            self.history.final = Final(written, owners, took, self._bound_seconds)
        finally:
            self._stopping.set()
            watcher.stop()
            for each in self._members:
                each.end(signal.SIGTERM)
        for each in self._members:
            assert each.ended is not None
            read_member_log(each.name, each.journal, each.ended, self.history)

    def judge(self) -> list[Violation]:
        return check_group(self.history)

    # Faults

    def start_member(self) -> MemberProcess:
        settings: dict[str, object] = {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "group.id": GROUP,
            "topic": TOPIC,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "fetch.error.backoff.ms": 10,
            **STYLES[self._style],
            **_RECONNECT,
        }
        if self._style != "broker":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 100}
        made = MemberProcess(f"member-{len(self._members)}", settings, self._directory)
        self._members.append(made)
        return made

    def kill_broker(self) -> None:
        """SIGKILL and back again."""
        self.broker.kill()
        self.broker.start()
        self.kills += 1

    def kill_broker_in_a_rebalance(self) -> None:
        """Somebody joins, and the broker dies somewhere on the way to the new assignment."""
        joining = self.start_member()
        until(lambda: joining.has_written("assigned") > 0 or self._chance(), "a rebalance")
        self.kill_broker()

    def kill_a_member(self) -> None:
        self._draw.choice(self._alive()).end(signal.SIGKILL)

    @contextmanager
    def a_member_stands_still(self) -> Iterator[MemberProcess]:
        """SIGSTOP past its session, then SIGCONT: it may have records in hand."""
        chosen = self._draw.choice(self._alive())
        chosen.signal(signal.SIGSTOP)
        try:
            yield chosen
        finally:
            chosen.signal(signal.SIGCONT)
        before = chosen.has_written("committed")
        until(lambda: chosen.has_written("committed") > before, "a commit of who stood still")

    def wait_for_commits(self, count: int, besides: MemberProcess | None = None) -> None:
        """Progress is demanded also while something is broken."""
        target = self._commits(besides) + count
        until(lambda: self._commits(besides) >= target, f"{count} more commits")

    def pause(self, seconds: float) -> None:
        """Let a session run out; nothing can be asked about it before."""
        threading.Event().wait(seconds)

    def _chance(self) -> bool:
        """True sooner or later: the moment of a kill is nobody's choice."""
        return self._draw.random() < 0.02

    def _alive(self) -> list[MemberProcess]:
        return [each for each in self._members if each.ended is None]

    def _commits(self, besides: MemberProcess | None = None) -> int:
        return sum(each.has_written("committed") for each in self._members if each is not besides)

    # The writer and the end

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
                **_RECONNECT,
            }
        )
        while not self._stopping.wait(0.01):
            self._written += 1
            for index in range(PARTITIONS):
                # Each time is another one, so that a lookup by time can be judged.
                producer.produce(TOPIC, b"x" * 50, partition=index, timestamp=self._written)
            producer.poll(0)
        assert producer.flush(30) == 0

    def _wait_until_settled(self, written: Written, started: float) -> dict[tuple[str, int], str]:
        """Until everything has been read and everybody who is left has its share."""
        while True:
            look = GroupHistory()
            for each in self._alive():
                read_member_log(each.name, each.journal, now(), look)
            owners = {each.partition: each.member for each in look.tenures if each.how == "ended"}
            if len(owners) == PARTITIONS and self._all_read(written):
                return owners
            if time.monotonic() > started + self._bound_seconds:
                return owners
            time.sleep(0.05)

    def _all_read(self, written: Written) -> bool:
        look = GroupHistory()
        for each in self._members:
            read_member_log(each.name, each.journal, now(), look)
        seen: dict[Partition, set[int]] = {each: set() for each in written}
        for tenure in look.tenures:
            seen[tenure.partition].update(tenure.offsets)
        return all(len(seen[each]) >= len(written[each]) for each in written)


def timestamps(bootstrap_servers: str) -> Written:
    """The timestamp of every record, by partition and offset, read by a consumer of no group."""
    places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    reading = consumer(bootstrap_servers, places)
    try:
        found: dict[Partition, list[int]] = {(TOPIC, each.partition): [] for each in places}
        ends = {
            (TOPIC, each.partition): reading.get_watermark_offsets(Assigned(*each), timeout=20)[1]
            for each in places
        }
        deadline = time.monotonic() + BOUND_SECONDS
        while any(len(found[each]) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, "the topic cannot be read"
            for message in reading.consume(5000, timeout=0.1):
                if message.error() is None:
                    place = (TOPIC, int(str(message.partition())))
                    found[place].append(message.timestamp()[1])
        return found
    finally:
        reading.close()


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Nobody waits for ever."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no progress: {what}"
        time.sleep(0.01)
