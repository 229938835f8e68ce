"""A partition whose log cannot be opened: its requests are refused, its siblings are served, and
all of it is there again at the next start that can read it."""

import logging
from pathlib import Path

import pytest

from headrace.coordinator.internal_topic import partition_for
from headrace.core.errors import ErrorCode
from headrace.core.ids import TopicPartition
from headrace.log.checkpoints import read_offsets
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS, CleanerCheckpoint
from headrace.log.compaction.runner import InlineCompactor
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.node.log_cleaner import LogCleaner
from headrace.node.metrics import PARTITIONS_OFFLINE
from headrace.node.system import RealClock, ThreadExecutor
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from tests.support.four_partitions import RECORDS, Client, fill
from tests.support.group_wire import commit_request
from tests.support.nodes import UnreadableFiles, running_node

OFFLINE = 1
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
GROUPS = [f"g{number}" for number in range(12)]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.name.startswith(("t-", "__c"))}


async def test_every_request_for_an_offline_partition_is_refused_and_its_siblings_are_served(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    files = UnreadableFiles(f"/t-{OFFLINE}/0")
    expected = [ErrorCode.NONE, STORAGE, ErrorCode.NONE, ErrorCode.NONE]
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        assert [code for code, _ in await client.ends()] == expected
        assert await client.fetch() == expected
        assert await client.delete_records() == expected
        assert await client.epoch_ends() == expected
        assert await client.producers() == expected
        assert await client.produce() == expected
        assert await client.offline_replicas() == [[], [node.services.node_id], [], []]
        assert node.metrics is not None
        assert [
            list(family.samples)
            for family in node.metrics.collect()
            if family.metric is PARTITIONS_OFFLINE
        ] == [list(PARTITIONS_OFFLINE.value(1).samples)]
        dirs = (await client.ask(DescribeLogDirsRequest(topics=None), 4)).results
        assert [(each.error_code, each.log_dir) for each in dirs] == [
            (ErrorCode.NONE, str(tmp_path)),
            (STORAGE, f"{tmp_path}/t-{OFFLINE}"),
        ]


@pytest.mark.parametrize("part", ["0", "partition.metadata", ""])
async def test_nothing_is_lost_by_a_start_that_could_not_read_one_partition(
    tmp_path: Path, part: str
) -> None:
    await fill(tmp_path)
    before = names(tmp_path)
    files = UnreadableFiles(f"/t-{OFFLINE}/{part}")
    async with running_node(tmp_path, files=files):
        assert names(tmp_path) == before
    assert names(tmp_path) == before
    async with running_node(tmp_path) as node, Client(node) as client:
        assert await client.ends() == [(0, RECORDS)] * 4


async def test_compaction_keeps_what_it_knows_of_an_offline_partition(tmp_path: Path) -> None:
    await fill(tmp_path)
    files = UnreadableFiles(f"/t-{OFFLINE}/0")
    async with running_node(tmp_path, files=files) as node:
        checkpoint = CleanerCheckpoint(files, str(tmp_path))
        offline, deleted = TopicPartition("t", OFFLINE), TopicPartition("deleted", 0)
        checkpoint.update(offline, 2)
        checkpoint.update(deleted, 2)
        replicas = node.services.replicas
        compactor = InlineCompactor(files)
        await LogCleaner(replicas, compactor, checkpoint, RealClock(), ThreadExecutor()).clean_all()
    assert read_offsets(files, str(tmp_path / CLEANER_OFFSETS)) == {offline: 2}


async def test_groups_of_an_offline_shard_wait_and_the_others_go_on(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path, offsets_topic_num_partitions="5") as node,
        Client(node) as client,
    ):
        await client.create()
        await client.ask(FindCoordinatorRequest(key="g"), 2)
        for offset, group in enumerate(GROUPS):
            answer = await client.ask(commit_request(group, "t", {0: offset}), 8)
            assert answer.topics[0].partitions[0].error_code == 0
    shard = partition_for(GROUPS[0], 5)
    lost = [group for group in GROUPS if partition_for(group, 5) == shard]
    assert 0 < len(lost) < len(GROUPS)
    waiting = ErrorCode.COORDINATOR_NOT_AVAILABLE
    files = UnreadableFiles(f"/{OFFSETS_TOPIC}-{shard}/0")
    async with (
        running_node(tmp_path, files=files, offsets_topic_num_partitions="5") as node,
        Client(node) as client,
    ):
        for offset, group in enumerate(GROUPS):
            expected = (waiting, -2) if group in lost else (0, offset)
            assert await client.committed(group) == expected
        group = lost[0]
        commit = await client.ask(commit_request(group, "t", {0: 5}), 8)
        assert commit.topics[0].partitions[0].error_code == waiting
        heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        assert (await client.ask(heartbeat, 3)).error_code == waiting
        described = await client.ask(DescribeGroupsRequest(groups=[group]), 5)
        assert described.groups[0].error_code == waiting
        described = await client.ask(
            ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 0
        )
        assert described.groups[0].error_code == waiting
        deleted = await client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        assert deleted.results[0].error_code == waiting
    async with (
        running_node(tmp_path, offsets_topic_num_partitions="5") as node,
        Client(node) as client,
    ):
        assert [await client.committed(group) for group in GROUPS] == [
            (0, offset) for offset in range(len(GROUPS))
        ]


async def test_what_the_metadata_do_not_assign_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(tmp_path)
    (tmp_path / "t-3").rename(tmp_path / "u-0")
    caplog.set_level(logging.WARNING)
    async with running_node(tmp_path) as node, Client(node) as client:
        assert [code for code, _ in await client.ends()] == [0, 0, 0, 0]
    assert "partition=u-0" in caplog.text
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("-stray")]


async def test_a_topic_with_an_offline_partition_can_be_deleted_and_made_again(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    files = UnreadableFiles(f"/t-{OFFLINE}/0")
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
        assert [code for code, _ in await client.ends()] == [3, 3, 3, 3]
        files.parts = ()
        await client.create()
        assert await client.ends() == [(0, 0)] * 4
        assert await client.produce() == [0, 0, 0, 0]
    async with running_node(tmp_path) as node, Client(node) as client:
        assert await client.ends() == [(0, 1)] * 4
