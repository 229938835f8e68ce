"""Groups move with their partition: images in which it is led here, elsewhere, and here again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest_asyncio

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.group_coordinator import GroupCoordinator
from headrace.groups.result import ClientInfo
from headrace.metadata.delta import Delta
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.node.system import RealClock, RealRandomness
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from headrace.replication.partition import Partition
from tests.support.group_wire import commit_request
from tests.unit.replication.test_replica_manager import ME, OTHER, Node, image_of, registration

NOWHERE = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class GroupNode(Node):
    """A node of a cluster whose offsets topic has one partition."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.directory.release_lock()
        self.request_flush = lambda _, __: None
        self.open()
        self.heard: list[tuple[str, int]] = []
        self.groups = self.new_groups()

    def new_groups(self) -> GroupCoordinator:
        config = BrokerConfig.from_static({"log.dirs": str(self.path)})
        groups = GroupCoordinator(
            lambda: self.image,
            self.replicas,
            cast(Any, None),
            RealClock(),
            RealRandomness(),
            config,
        )
        groups.start()
        return groups

    async def led_by(self, leader: int, epoch: int) -> None:
        """Publish an image; on this node alone the records of the partition are committed."""
        partition = registration(leader, epoch, (ME, OTHER), isr=(leader,))
        before = self.image
        self.image = image_of(partition, name=OFFSETS_TOPIC)
        delta = Delta(topics=frozenset([OFFSETS_TOPIC]))
        await self.replicas.publish(before, self.image, delta)

    @property
    def partition(self) -> Partition:
        found = self.replicas.find(OFFSETS_TOPIC, 0)
        assert found is not None
        return found

    def flush(self) -> None:
        self.partition.flushed(self.partition.log.log_end_offset, 0)

    def reply(self, name: str) -> Callable[[Message | ApiError], None]:
        def heard(outcome: Message | ApiError) -> None:
            code = outcome.code if isinstance(outcome, ApiError) else ErrorCode.NONE
            self.heard.append((name, code))

        return heard

    def commit(self, offset: int) -> None:
        self.groups.commit(
            commit_request("offsets", "t", {0: offset}), 9, self.reply(f"commit {offset}")
        )

    def join(self) -> None:
        """The first of a group, which waits for others."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.groups.join(request, ClientInfo("c", "/h", 3, "c-1"), self.reply("join"))

    def fetched(self) -> tuple[int, int | None]:
        """The error, and the offset that was committed."""
        found: list[OffsetFetchResponseGroup] = []
        self.groups.fetch([OffsetFetchRequestGroup(group_id="offsets", topics=None)], found.extend)
        (group,) = found
        offsets = [each.committed_offset for topic in group.topics for each in topic.partitions]
        return group.error_code, offsets[0] if offsets else None

    async def loaded(self) -> tuple[int, int | None]:
        while (found := self.fetched())[0] == LOADING:
            await asyncio.sleep(0)
            self.flush()
        return found


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[GroupNode]:
    node = GroupNode(tmp_path / "data")
    yield node
    await node.groups.runtime.close()
    node.close()


async def test_groups_are_here_as_long_as_their_partition_is_led_here(node: GroupNode) -> None:
    await node.led_by(OTHER, 0)
    assert node.partition.log.log_end_offset == 0
    assert node.fetched() == (NOWHERE, None), "an empty log that another node leads"
    await node.led_by(ME, 1)
    assert node.fetched() == (0, None)
    node.commit(5)
    await asyncio.sleep(0)
    node.flush()
    assert node.heard == [("commit 5", 0)]

    node.join()
    node.commit(6)
    await asyncio.sleep(0)  # in the log, and not committed
    node.commit(7)
    await node.led_by(OTHER, 2)
    assert sorted(node.heard[1:]) == [
        ("commit 6", NOWHERE),
        ("commit 7", NOWHERE),
        ("join", NOWHERE),
    ]
    assert node.fetched() == (NOWHERE, None)
    await asyncio.sleep(0)
    assert len(node.heard) == 4

    await node.led_by(ME, 3)
    assert await node.loaded() == (0, 6), "what was in the log, and nothing else"
    node.commit(8)
    await asyncio.sleep(0)
    node.flush()
    assert node.heard[-1] == ("commit 8", 0)


async def test_members_whose_groups_are_being_loaded_stay(node: GroupNode) -> None:
    await node.led_by(ME, 1)
    node.commit(5)
    await asyncio.sleep(0)
    await node.led_by(ME, 2)
    assert node.heard == [("commit 5", NOWHERE)], "nobody knows yet whether it counts"
    assert node.fetched() == (LOADING, None)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert node.groups.heartbeat(beat).error_code == ErrorCode.NONE
    assert await node.loaded() == (0, 5)


async def test_a_coordinator_that_is_made_late_knows_what_is_led_already(
    node: GroupNode,
) -> None:
    await node.led_by(ME, 4)
    node.commit(5)
    await asyncio.sleep(0)
    await node.groups.runtime.close()
    node.groups = node.new_groups()
    assert node.fetched() == (LOADING, None)
    assert await node.loaded() == (0, 5)
