"""Somebody who was put out of the group comes back and commits: only a broken broker lets it.

Members of real clients wake up as they please, and most of them notice first that they were put
out. These say what a sleeper says that notices nothing, and wait for answers instead of time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from headrace.groups import offset_requests
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from headrace.testing import Broker
from tests.faults.groups.group_run import BROKER_SETTINGS, GROUP, SESSION_MS, TOPIC
from tests.support.group_checks import check_group
from tests.support.group_history import Commit, Final, GroupHistory, Observed, Tenure, now
from tests.support.group_wire import GroupWire, commit_request, subscription, until
from tests.support.history_checks import Violation

PLACE = (TOPIC, 0)
RECORDS = 5


class Reader(Protocol):
    """A member that owns the partition once `join` returns, and knows nothing of others."""

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    def join(self) -> None: ...


class Classic:
    """Others are waited for by the broker: the join is answered when they are put out."""

    def __init__(self, wire: GroupWire) -> None:
        offered = {"range": subscription(TOPIC)}
        self._member = wire.member(GROUP, session_timeout_ms=SESSION_MS, protocols=offered)

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def generation(self) -> int:
        return self._member.generation

    def join(self) -> None:
        assert self._member.join().error_code == 0
        assert self._member.sync({self.member_id: b"mine"}).assignment == b"mine"


class Modern:
    """Heartbeats until the partition is free."""

    def __init__(self, wire: GroupWire) -> None:
        self._wire = wire
        self.member_id = str(uuid.uuid4())
        self.generation = 0

    def join(self) -> None:
        if not self._beat(rebalance_timeout_ms=10_000, subscribed_topic_names=[TOPIC]):
            until(lambda: self._beat() or None, "the partition")

    def _beat(self, **said: object) -> bool:
        """Whether it was given something."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.generation,
            topic_partitions=[],
            **said,  # type: ignore[arg-type]  # fields of a first request
        )
        answer = self._wire.ask(request, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer.error_message
        self.generation = answer.member_epoch
        if answer.assignment is None or not answer.assignment.topic_partitions:
            return False
        request.topic_partitions = [
            OwnedTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in answer.assignment.topic_partitions
        ]
        request.member_epoch = self.generation
        self._wire.ask(request, 1, ConsumerGroupHeartbeatResponse)
        return True


def fence_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither membership nor epoch matters to commits."""
    monkeypatch.setattr(offset_requests, "_check_commit", lambda *_: None)


def nothing(_: pytest.MonkeyPatch) -> None:
    """An unbroken broker."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", settings=BROKER_SETTINGS) as running:
        running.create_topic(TOPIC, partitions=1)
        yield running


@pytest.mark.parametrize("kind", [Classic, Modern])
@pytest.mark.parametrize(
    ("broken", "found"), [(nothing, set()), (fence_nobody, {"I14", "I15"})], ids=["sound", "broken"]
)
def test_a_sleeper_that_commits_after_it_was_put_out_is_found(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Classic | Modern],
    broken: Callable[[pytest.MonkeyPatch], None],
    found: set[str],
) -> None:
    broken(monkeypatch)
    wire = GroupWire(broker.port)
    wire.find(GROUP)
    story = _Story(wire)
    try:
        sleeper, successor = kind(wire), kind(wire)
        story.reads("sleeper", sleeper, range(3))
        assert story.commits("sleeper", sleeper, 3)
        # The sleeper says nothing more; its session runs out and the other one has its share.
        story.reads("successor", successor, range(3, RECORDS))
        assert story.commits("successor", successor, RECORDS)
        story.commits("sleeper", sleeper, 4)
        assert {each.invariant for each in story.judged()} == found
    finally:
        wire.close()


class _Story:
    """Writes down what the members were answered."""

    def __init__(self, wire: GroupWire) -> None:
        self._wire = wire
        self._history = GroupHistory()
        self._reading: list[tuple[str, int, tuple[int, ...]]] = []

    def reads(self, name: str, reader: Reader, offsets: range) -> None:
        reader.join()
        self._reading.append((name, now(), tuple(offsets)))

    def commits(self, name: str, reader: Reader, offset: int) -> bool:
        began = now()
        request = commit_request(
            GROUP, TOPIC, {0: offset}, member_id=reader.member_id, generation=reader.generation
        )
        answer = self._wire.ask(request, 9, OffsetCommitResponse)
        ok = answer.topics[0].partitions[0].error_code == 0
        self._history.commits.append(Commit(name, PLACE, began, now(), offset, ok))
        return ok

    def judged(self) -> list[Violation]:
        began = now()
        committed = self._wire.committed(GROUP, TOPIC)
        self._history.observed.append(Observed(PLACE, began, now(), committed))
        self._history.tenures = [
            Tenure(name, PLACE, at, now(), "ended", offsets) for name, at, offsets in self._reading
        ]
        owner = self._reading[-1][0]
        self._history.final = Final({PLACE: range(RECORDS)}, {PLACE: owner}, 0.0, 1.0)
        return check_group(self._history)
