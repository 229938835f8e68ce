"""Keys of classic groups, committed offsets and the topic they are kept in."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client import Client, NewTopic
from headrace.core.errors import ErrorCode
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.node.system import RealClock
from headrace.protocol.compression import Codec
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headrace.testing import Broker
from tests.support.config_effects import (
    WAIT_SECONDS,
    config_value,
    effect_of,
    eventually,
    stored_batches,
)
from tests.support.group_wire import GroupWire, commit_request
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
NOT_ANSWERED_SECONDS = 0.3


@contextmanager
def wire_to(settings: dict[str, str]) -> Iterator[tuple[Broker, GroupWire]]:
    """A broker with a topic `t`, and connections for members of groups."""
    with Broker(settings=settings) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topics([NewTopic("t", 1)])
        wire = GroupWire(broker.port)
        try:
            yield broker, wire
        finally:
            wire.close()


@effect_of("group.initial.rebalance.delay.ms")
def test_the_first_rebalance_waits_for_more_members() -> None:
    with wire_to(AT_ONCE) as (_, wire):
        assert wire.member("g").join().error_code == ErrorCode.NONE
    with wire_to({"group.initial.rebalance.delay.ms": "60000"}) as (_, wire):
        member = wire.member("g")
        assert member.join_once().error_code == ErrorCode.MEMBER_ID_REQUIRED
        member.begin_join()
        with pytest.raises(TimeoutError):
            member.end_join(seconds=NOT_ANSWERED_SECONDS)


@effect_of("group.min.session.timeout.ms", "group.max.session.timeout.ms")
def test_session_timeouts_have_bounds() -> None:
    bounds = {"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "200"}
    with wire_to(AT_ONCE | bounds) as (_, wire):
        for asked, code in (
            (99, ErrorCode.INVALID_SESSION_TIMEOUT),
            (100, ErrorCode.NONE),
            (200, ErrorCode.NONE),
            (201, ErrorCode.INVALID_SESSION_TIMEOUT),
        ):
            member = wire.member(f"g{asked}", session_timeout_ms=asked)
            assert member.join().error_code == code


@effect_of("group.max.size")
def test_a_full_group_takes_nobody_else() -> None:
    with wire_to(AT_ONCE | {"group.max.size": "1"}) as (_, wire):
        first, second = wire.member("g"), wire.member("g")
        assert first.join().error_code == ErrorCode.NONE
        assert second.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@effect_of("offset.metadata.max.bytes")
def test_a_committed_text_has_a_limit() -> None:
    with wire_to({"offset.metadata.max.bytes": "3"}) as (_, wire):
        wire.find("g")
        for text, code in (("abc", ErrorCode.NONE), ("abcd", ErrorCode.OFFSET_METADATA_TOO_LARGE)):
            request = commit_request("g", "t", {0: 5}, metadata=text)
            answer = wire.ask(request, 9, OffsetCommitResponse)
            assert answer.topics[0].partitions[0].error_code == code


@effect_of("offsets.retention.check.interval.ms")
def test_expired_offsets_are_looked_for_every_so_often() -> None:
    with wire_to({"offsets.retention.check.interval.ms": "20"}) as (_, wire):
        wire.find("g")
        request = commit_request("g", "t", {0: 5})
        request.retention_time_ms = 1
        wire.ask(request, 4, OffsetCommitResponse)
        eventually(lambda: wire.committed("g", "t") == -1, "the offset is gone")


class LaterClock(RealClock):
    """The real time, and what a test adds to it."""

    added_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.added_ms


@effect_of("offsets.retention.minutes")
async def test_offsets_outlive_their_last_commit_by_the_retention_time(tmp_path: Path) -> None:
    clock = LaterClock()
    async with (
        running_node(
            tmp_path,
            clock=clock,
            offsets_retention_minutes="2",
            offsets_retention_check_interval_ms="20",
        ) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await client.call(CreateTopicsRequest(topics=[new_topic("t")], timeout_ms=1000), 7)
        await client.call(FindCoordinatorRequest(key="g"), 2)

        async def committed(group: str) -> int:
            asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            answer = await client.call(OffsetFetchRequest(group_id=group, topics=asked), 7)
            assert isinstance(answer, OffsetFetchResponse)
            return answer.topics[0].partitions[0].committed_offset

        await client.call(commit_request("old", "t", {0: 5}), 9)
        clock.added_ms = 60_000
        await client.call(commit_request("young", "t", {0: 5}), 9)
        assert await committed("old") == 5
        clock.added_ms = 121_000
        async with asyncio.timeout(WAIT_SECONDS):
            while await committed("old") != -1:
                await asyncio.sleep(0.01)
        assert await committed("young") == 5


def new_topic(name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )


@effect_of("offsets.topic.num.partitions", "offsets.topic.segment.bytes")
def test_the_topic_of_offsets_is_made_as_configured() -> None:
    settings = {"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "1048577"}
    with wire_to(settings) as (broker, wire):
        wire.find("g")
        with Client(broker.bootstrap_servers) as client:
            described = client.admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        assert len(described.partitions) == 3
        assert config_value(broker, OFFSETS_TOPIC, "segment.bytes") == "1048577"
        assert config_value(broker, OFFSETS_TOPIC, "cleanup.policy") == "compact"


@effect_of("offsets.topic.replication.factor")
def test_groups_wait_for_as_many_brokers_as_offsets_want_replicas() -> None:
    with wire_to({"offsets.topic.replication.factor": "2"}) as (_, wire):
        answer = wire.ask(FindCoordinatorRequest(key="g"), 2, FindCoordinatorResponse)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@effect_of("offsets.topic.compression.codec")
def test_group_records_are_compressed_as_configured() -> None:
    settings = {"offsets.topic.compression.codec": "4", "offsets.topic.num.partitions": "1"}
    with wire_to(settings) as (broker, wire):
        wire.find("g")
        wire.ask(commit_request("g", "t", {0: 5}), 9, OffsetCommitResponse)
        assert {header.codec for header, _ in stored_batches(broker, OFFSETS_TOPIC)} == {Codec.ZSTD}
