"""kafka-python's members and admin calls on groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import GroupSubscribedToTopicError, KafkaError, NoError, UnknownMemberIdError

from tests.integration.groups.conftest import FilledMaker
from tests.support.brokers import BrokerProcess

_PATIENCE_SECONDS = 30
# A shorter poll gives up its part of a join before the answer is there.
_POLL_MS = 200
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # published without types
    """Notes what it is told."""

    def __init__(self) -> None:
        self.assigned: list[set[Any]] = []
        self.revoked: list[set[Any]] = []

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self.assigned.append(set(assigned))

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.revoked.append(set(revoked))


class Member:
    """One consumer, its listener and the offsets it has read."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.listener = Listener()
        self.read: list[tuple[int, int]] = []
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            **{
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
                "session_timeout_ms": 6000,
                "retry_backoff_ms": 20,
                **settings,
            },
        )
        self.consumer.subscribe([topic], listener=self.listener)

    @property
    def owned(self) -> set[Any]:
        return set(self.consumer.assignment())

    def poll(self) -> None:
        for partition, records in self.consumer.poll(timeout_ms=_POLL_MS).items():
            self.read.extend((partition.partition, record.offset) for record in records)


MemberMaker = Callable[..., Member]


@pytest.fixture
def member(broker: BrokerProcess, group: str) -> Iterator[MemberMaker]:
    made: list[Member] = []

    def make(topic: str, **settings: Any) -> Member:
        made.append(Member(broker.bootstrap_servers, group, topic, **settings))
        return made[-1]

    yield make
    for each in made:
        with suppress(KafkaError):
            each.consumer.close()


def _until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [each.owned for each in members]
        for each in members:
            each.poll()


def _until_shared(partitions: int, *members: Member) -> None:
    def divided() -> bool:
        counts = [len(each.owned) for each in members]
        everything = set().union(*(each.owned for each in members))
        return sum(counts) == partitions == len(everything) and min(counts) > 0

    _until(divided, *members)


@pytest.mark.parametrize("assignor", _ASSIGNORS)
def test_members_join_share_and_leave(
    filled: FilledMaker, member: MemberMaker, assignor: str
) -> None:
    topic = filled(4, 10)
    strategy = [_ASSIGNORS[assignor]]
    first = member(topic, partition_assignment_strategy=strategy)
    _until(lambda: len(first.read) == 40, first)
    second = member(topic, partition_assignment_strategy=strategy)
    _until_shared(4, first, second)
    revoked = set().union(*first.listener.revoked)
    assert len(revoked) == (2 if assignor == "cooperative-sticky" else 4)
    second.consumer.close()
    _until_shared(4, first)
    assert len(first.read) == 40


def test_commits_sync_and_async_carry_metadata_and_are_where_the_next_one_starts(
    filled: FilledMaker, member: MemberMaker
) -> None:
    topic = filled(1, 10)
    partition = TopicPartition(topic, 0)
    first = member(topic, enable_auto_commit=False)
    _until(lambda: len(first.read) == 10, first)
    first.consumer.commit({partition: OffsetAndMetadata(4, "so far", -1)})
    assert first.consumer.committed(partition) == 4
    assert first.consumer.committed(partition, metadata=True).metadata == "so far"
    told: list[Any] = []
    first.consumer.commit_async(
        {partition: OffsetAndMetadata(6, "", -1)}, callback=lambda *said: told.append(said)
    )
    _until(lambda: bool(told), first)
    assert not isinstance(told[0][1], Exception)
    first.consumer.close()
    second = member(topic, enable_auto_commit=False)
    _until(lambda: len(second.read) == 4, second)
    assert second.read == [(0, 6), (0, 7), (0, 8), (0, 9)]


def test_pause_resume_and_seek(filled: FilledMaker, member: MemberMaker) -> None:
    topic = filled(2, 5)
    one = member(topic)
    _until(lambda: len(one.read) == 10, one)
    zero, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    one.consumer.pause(zero)
    for each in (zero, other):
        one.consumer.seek(each, 3)
    _until(lambda: len(one.read) == 12, one)
    assert one.read[10:] == [(1, 3), (1, 4)]
    one.consumer.resume(zero)
    _until(lambda: len(one.read) == 14, one)
    assert one.read[12:] == [(0, 3), (0, 4)]
    assert one.consumer.position(zero) == 5


def test_a_static_member_comes_back_without_a_rebalance(
    filled: FilledMaker, member: MemberMaker
) -> None:
    topic = filled(2, 1)
    first = member(topic, group_instance_id="one")
    second = member(topic, group_instance_id="two")
    _until_shared(2, first, second)
    kept, told = second.owned, len(first.listener.revoked)
    second.consumer.close()
    again = member(topic, group_instance_id="two")
    _until(lambda: again.owned == kept, first, again)
    assert len(first.listener.revoked) == told


def test_a_member_without_offsets_may_start_at_the_end(
    filled: FilledMaker, member: MemberMaker
) -> None:
    topic = filled(1, 5)
    one = member(topic, auto_offset_reset="latest")
    _until_shared(1, one)
    assert one.consumer.position(TopicPartition(topic, 0)) == 5


def test_admin_lists_describes_moves_and_deletes(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str
) -> None:
    topic = filled(2, 10)
    zero, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        one = member(topic, client_id="alpha")
        _until(lambda: len(one.read) == 20, one)
        one.consumer.commit()
        (listed,) = [each for each in admin.list_groups() if each["group_id"] == group]
        assert listed["protocol_type"] == "consumer"
        assert listed["group_state"] == "Stable"
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert [each["client_id"] for each in described["members"]] == ["alpha"]
        offsets = admin.list_group_offsets(group)[group]
        assert {each: found.offset for each, found in offsets.items()} == {zero: 10, other: 10}
        move = {zero: OffsetAndMetadata(3, "", -1)}
        assert admin.alter_group_offsets(group, move) == {zero: UnknownMemberIdError}
        assert admin.delete_group_offsets(group, [zero]) == {zero: GroupSubscribedToTopicError}
        one.consumer.close()
        assert admin.alter_group_offsets(group, move) == {zero: NoError}
        assert admin.delete_group_offsets(group, [other]) == {other: NoError}
        offsets = admin.list_group_offsets(group)[group]
        assert {each: found.offset for each, found in offsets.items()} == {zero: 3}
        admin.reset_group_offsets(group, {zero: OffsetSpec.LATEST})
        assert admin.list_group_offsets(group)[group][zero].offset == 10
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()
