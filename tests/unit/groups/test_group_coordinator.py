"""The coordinator on a running node: durable answers, loading, and a log that fails."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.core.errors import ErrorCode, StorageError
from headrace.groups import shard as shard_module
from headrace.groups.group_coordinator import GroupCoordinator
from headrace.groups.shard import GroupShard
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.node.node import Node
from headrace.node.system import ThreadExecutor
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.cold_disk import cold_disk
from tests.support.group_wire import commit_request
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

T = TypeVar("T")
PATIENCE_SECONDS = 20


class Caller(RawClient):
    """A client with the few requests of this module."""

    def __init__(self, node: Node) -> None:
        super().__init__(*node.addresses["PLAINTEXT"])

    async def prepare(self) -> None:
        """A topic `t`, and the coordinator."""
        topic = CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        found = await self.call(FindCoordinatorRequest(key="g"), 2)
        assert isinstance(found, FindCoordinatorResponse)
        assert found.error_code == ErrorCode.NONE

    async def commit(self, offset: int, group: str = "g") -> int:
        answer = await self.call(commit_request(group, "t", {0: offset}), 9)
        assert isinstance(answer, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    async def committed(self, group: str = "g") -> int:
        """The offset, once the coordinator has loaded."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                answer = await self.call(fetch_request(group), 9)
                assert isinstance(answer, OffsetFetchResponse)
                if not answer.groups[0].error_code:
                    return answer.groups[0].topics[0].partitions[0].committed_offset
                await asyncio.sleep(0.01)


def fetch_request(group: str) -> OffsetFetchRequest:
    asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])


async def test_offsets_are_back_after_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        for number in range(20):
            assert await client.commit(number, f"g{number}") == ErrorCode.NONE
    async with running_node(tmp_path) as node, Caller(node) as client:
        assert [await client.committed(f"g{number}") for number in range(20)] == list(range(20))


async def test_before_any_group_there_is_no_coordinator_and_no_topic(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        assert OFFSETS_TOPIC not in node.services.controller.image.topics
        answer = await client.call(fetch_request("g"), 9)
        assert isinstance(answer, OffsetFetchResponse)
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        listed = await client.call(ListGroupsRequest(), 5)
        assert isinstance(listed, ListGroupsResponse)
        assert (listed.error_code, listed.groups) == (ErrorCode.NONE, [])
        await client.prepare()
        assert len(node.services.controller.image.topics[OFFSETS_TOPIC].partitions) == 50


async def test_while_groups_are_loaded_their_members_are_told_to_wait(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        await client.commit(7)
    async with running_node(tmp_path) as node, Caller(node) as client:
        # A coordinator of our own, looked at before the loop gives its loader a turn.
        services = node.services
        groups = GroupCoordinator(
            lambda: services.controller.image,
            services.replicas,
            services.auto_topic_creation,
            services.clock,
            services.randomness,
            services.config,
        )
        groups.start()
        asked = fetch_request("g").groups
        found: list[OffsetFetchResponseGroup] = []
        groups.fetch(asked, found.extend)
        assert found[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert groups.heartbeat(beat).error_code == ErrorCode.NONE
        while not found or found[-1].error_code:
            await asyncio.sleep(0)
            groups.fetch(asked, found.extend)
        assert found[-1].topics[0].partitions[0].committed_offset == 7
        await groups.runtime.close()


async def test_others_are_answered_while_groups_are_read_from_a_cold_disk(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        for offset in range(5):
            await client.commit(offset)
    with cold_disk(OFFSETS_TOPIC) as disk:
        async with running_node(tmp_path) as node:
            # Logs have been opened, groups are read next.
            disk.cool_down(node)
            async with Caller(node) as client:
                for _ in range(20):
                    answer = await client.call(fetch_request("g"), 9)
                    assert isinstance(answer, OffsetFetchResponse)
                    loading = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    assert answer.groups[0].error_code in loading
                disk.is_well.set()
                assert (await client.committed(), disk.reads_of_the_loop) == (4, 0)


async def test_others_are_answered_while_offsets_of_a_deleted_topic_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"g{number}" for number in range(40)]
    async with (
        running_node(tmp_path, offsets_topic_num_partitions="1") as node,
        Caller(node) as client,
        Caller(node) as other,
    ):
        await client.prepare()
        for group in groups:
            assert await client.commit(7, group) == ErrorCode.NONE
        monkeypatch.setattr(shard_module, "OFFSETS_PER_SLICE", 1)
        seen: list[int] = []

        async def look_again_and_again() -> None:
            while True:
                loaded = node.services.groups.runtime.shards.get(0)
                assert loaded is not None
                await other.call(FindCoordinatorRequest(key="g"), 2)
                seen.append(len(loaded.shard.offsets))

        looking = asyncio.create_task(look_again_and_again())
        await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
        looking.cancel()
        assert [await client.committed(group) for group in groups] == [-1] * len(groups)
        assert any(0 < left < len(groups) for left in seen), "nobody was served meanwhile"
    async with running_node(tmp_path) as node, Caller(node) as client:
        assert [await client.committed(group) for group in groups] == [-1] * len(groups)


class HeldExecutor(ThreadExecutor):
    """Holds back whatever comes while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    async def run(self, call: Callable[[], T]) -> T:
        await self.open.wait()
        return await super().run(call)


async def test_nobody_is_told_what_is_not_yet_on_disk(tmp_path: Path) -> None:
    executor = HeldExecutor()
    async with (
        running_node(tmp_path, executor=executor) as node,
        Caller(node) as writer,
        Caller(node) as reader,
    ):
        await writer.prepare()
        assert await writer.commit(1) == ErrorCode.NONE
        executor.open.clear()
        writing = asyncio.create_task(writer.commit(2))
        while node.services.groups.counts.commits < 2:
            await asyncio.sleep(0)
        reading = asyncio.create_task(reader.committed())
        await asyncio.wait((writing, reading), timeout=0.1)
        assert not writing.done()
        assert not reading.done()
        executor.open.set()
        assert await writing == ErrorCode.NONE
        assert await reading == 2


async def test_waiting_for_other_members_is_not_slow_but_waiting_for_the_disk_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = HeldExecutor()
    slow_node = running_node(
        tmp_path,
        executor=executor,
        request_log_slow_ms="500",
        group_initial_rebalance_delay_ms="600",
    )
    async with slow_node as node, Caller(node) as client:
        await client.prepare()
        joined = await client.call(join_request(), 3)
        assert isinstance(joined, JoinGroupResponse)
        assert (joined.generation_id, node.request_metrics.slow_requests) == (1, 0)
        executor.open.clear()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
        )
        syncing = asyncio.create_task(client.call(request, 3))
        await asyncio.wait((syncing,), timeout=0.6)
        assert not syncing.done()
        executor.open.set()
        await syncing
        assert node.request_metrics.slow_requests == 1
        assert "slow request: api=SyncGroup" in caplog.text


async def test_what_the_log_did_not_take_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        assert await client.commit(1) == ErrorCode.NONE
        append = PartitionLog.append

        def broken(log: PartitionLog, *arguments: object) -> AppendInfo:
            if OFFSETS_TOPIC in log.directory:
                raise StorageError("no space")
            return append(log, *arguments)  # type: ignore[arg-type]  # handed on as they are

        monkeypatch.setattr(PartitionLog, "append", broken)
        assert await client.commit(2) == ErrorCode.NOT_COORDINATOR
        assert await client.committed() == 1
        monkeypatch.undo()
        assert await client.commit(3) == ErrorCode.NONE
        assert await client.committed() == 3


async def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        await client.commit(5)
        await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await client.prepare()
        assert await client.committed() == -1
    async with running_node(tmp_path) as node, Caller(node) as client:
        assert await client.committed() == -1


async def test_commits_of_one_connection_are_pipelined(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        sent = [client.send(commit_request("g", "t", {0: number}), 9) for number in range(100)]
        answers = [await client.receive(OffsetCommitResponse, 9) for _ in sent]
        assert [number for number, _ in answers] == sent
        assert await client.committed() == 99


async def test_a_group_without_an_id_may_store_offsets_and_nothing_else(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        assert await client.commit(1, "") == ErrorCode.NONE
        for request, version in (
            (join_request(group_id=""), 9),
            (SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=[]), 4),
            (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4),
            (LeaveGroupRequest(group_id="", members=[]), 4),
            (OffsetDeleteRequest(group_id="", topics=[]), 0),
        ):
            response: Any = await client.call(request, version)
            assert response.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("length", [20_000, 40_000])
async def test_names_that_no_record_can_hold_are_refused(tmp_path: Path, length: int) -> None:
    async with running_node(tmp_path) as node, Caller(node) as client:
        await client.prepare()
        assert await client.commit(1, "g" * length) == ErrorCode.INVALID_GROUP_ID
        for long in (
            join_request(group_id="g" * length),
            join_request(group_instance_id="i" * length),
            join_request(protocol_type="t" * length),
            join_request(protocols=[JoinGroupRequestProtocol(name="p" * length, metadata=b"")]),
        ):
            answer = await client.call(long, 9)
            assert isinstance(answer, JoinGroupResponse)
            assert answer.error_code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_REQUEST)
        listed = await client.call(ListGroupsRequest(), 5)
        assert isinstance(listed, ListGroupsResponse)
        assert listed.groups == []


def join_request(**changes: Any) -> JoinGroupRequest:
    usual: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return JoinGroupRequest(**(usual | changes))


async def test_a_record_that_cannot_be_brought_in_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one_shard = running_node(tmp_path, offsets_topic_num_partitions="1")
    async with one_shard as node, Caller(node) as client:
        await client.prepare()
        for group, offset in (("bad", 1), ("good", 2)):
            assert await client.commit(offset, group) == ErrorCode.NONE
    sound = GroupShard.put_offset

    def put_offset(self: GroupShard, group_id: str, *stored: Any) -> None:
        if group_id == "bad":
            raise ZeroDivisionError("a fault nobody thought of")
        sound(self, group_id, *stored)

    monkeypatch.setattr(GroupShard, "put_offset", put_offset)
    async with running_node(tmp_path) as node, Caller(node) as client:
        assert await client.committed("good") == 2
    assert "a fault nobody thought of" in caplog.text
