"""aiokafka's members of a group: the oldest request versions among the Python clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import NoOffsetForPartitionError
from aiokafka.structs import OffsetAndMetadata

from tests.integration.groups.conftest import FilledMaker
from tests.support.brokers import BrokerProcess

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
_PATIENCE_SECONDS = 30


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # published without types
    """Notes what it is told."""

    def __init__(self) -> None:
        self.assigned: list[set[Any]] = []
        self.revoked: list[set[Any]] = []

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self.assigned.append(set(assigned))

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.revoked.append(set(revoked))


class Member:
    """A consumer and what it has read."""

    def __init__(self, consumer: AIOKafkaConsumer, listener: Listener) -> None:
        self.consumer = consumer
        self.listener = listener
        self.read: list[tuple[int, int]] = []

    async def poll(self) -> None:
        for partition, records in (await self.consumer.getmany(timeout_ms=20)).items():
            self.read.extend((partition.partition, record.offset) for record in records)


@asynccontextmanager
async def _member(
    broker: BrokerProcess, group: str, topic: str, **settings: Any
) -> AsyncIterator[Member]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        **{
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6000,
            "retry_backoff_ms": 20,
            **settings,
        },
    )
    listener = Listener()
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    try:
        yield Member(consumer, listener)
    finally:
        await consumer.stop()


async def _until(condition: Callable[[], bool], *members: Member) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not condition():
            for each in members:
                await each.poll()


def _shared(partitions: int, *members: Member) -> Callable[[], bool]:
    def divided() -> bool:
        shares = [each.consumer.assignment() for each in members]
        everything = set().union(*shares)
        return sum(map(len, shares)) == partitions == len(everything) and min(map(len, shares)) > 0

    return divided


@pytest.mark.parametrize("assignor", _ASSIGNORS)
async def test_members_join_share_and_leave(
    broker: BrokerProcess, filled: FilledMaker, group: str, assignor: str
) -> None:
    topic = filled(4, 10)
    strategy = [_ASSIGNORS[assignor]]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            _member(broker, group, topic, partition_assignment_strategy=strategy)
        )
        await _until(lambda: len(first.read) == 40, first)
        async with _member(broker, group, topic, partition_assignment_strategy=strategy) as second:
            await _until(_shared(4, first, second), first, second)
            assert second.read == []  # the first one has committed when it gave up its partitions
        await _until(_shared(4, first), first)
        assert len(first.read) == 40
        assert len(first.listener.assigned) >= 3


async def test_commits_carry_metadata_and_are_where_the_next_one_starts(
    broker: BrokerProcess, filled: FilledMaker, group: str
) -> None:
    topic = filled(1, 10)
    partition = TopicPartition(topic, 0)
    async with _member(broker, group, topic, enable_auto_commit=False) as first:
        await _until(lambda: len(first.read) == 10, first)
        await first.consumer.commit({partition: OffsetAndMetadata(6, "so far")})
        assert await first.consumer.committed(partition) == 6
        first.consumer.seek(partition, 8)
        await _until(lambda: len(first.read) == 12, first)
        assert first.read[10:] == [(0, 8), (0, 9)]
        await first.consumer.seek_to_committed()
        await _until(lambda: len(first.read) == 16, first)
    async with _member(broker, group, topic, enable_auto_commit=False) as second:
        await _until(lambda: len(second.read) == 4, second)
        assert second.read[0] == (0, 6)


async def test_a_static_member_comes_back_without_a_rebalance(
    broker: BrokerProcess, filled: FilledMaker, group: str
) -> None:
    topic = filled(2, 1)
    async with _member(broker, group, topic, group_instance_id="one") as first:
        async with _member(broker, group, topic, group_instance_id="two") as second:
            await _until(_shared(2, first, second), first, second)
            kept, told = second.consumer.assignment(), len(first.listener.revoked)
        async with _member(broker, group, topic, group_instance_id="two") as again:
            await _until(lambda: bool(again.consumer.assignment()), first, again)
            assert again.consumer.assignment() == kept
            assert len(first.listener.revoked) == told


@pytest.mark.parametrize(("reset", "position"), [("earliest", 0), ("latest", 5), ("none", None)])
async def test_without_a_committed_offset_reading_starts_where_the_client_says(
    broker: BrokerProcess, filled: FilledMaker, group: str, reset: str, position: int | None
) -> None:
    topic = filled(1, 5)
    async with _member(broker, group, topic, auto_offset_reset=reset) as one:
        if position is None:
            with pytest.raises(NoOffsetForPartitionError):
                await _until(lambda: False, one)
            return
        await _until(_shared(1, one), one)
        found = await one.consumer.position(TopicPartition(topic, 0))
        assert found in ((position, 5) if reset == "earliest" else (position,))


async def test_admin_lists_and_describes_groups(
    broker: BrokerProcess, filled: FilledMaker, group: str
) -> None:
    topic = filled(1, 5)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        async with _member(broker, group, topic) as one:
            await _until(lambda: len(one.read) == 5, one)
            await one.consumer.commit()
            assert (group, "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][0] == 0
            assert described.groups[0][2] == "Stable"
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition(topic, 0)].offset == 5
    finally:
        await admin.close()
