"""What fails for one partition while the broker runs is told for that partition alone, and is over
when its cause is gone."""

import asyncio
import errno
import logging
import os
import re
from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from headrace.log.checkpoints import read_offsets
from headrace.log.names import LOG_STARTS, RECOVERY_POINTS
from headrace.node import log_maintenance
from headrace.testing.unsynced_files import UnsyncedFileSystem
from tests.support.four_partitions import PARTITIONS, PATIENCE_SECONDS, RECORDS, Client, fill
from tests.support.nodes import FullDisk, UnreadableFiles, running_node

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
ONE_FAILS = [ErrorCode.NONE, STORAGE, ErrorCode.NONE, ErrorCode.NONE]


async def test_producers_that_cannot_be_loaded_fail_their_partition_alone_and_for_the_time_being(
    tmp_path: Path,
) -> None:
    """After a clean stop a partition's producers are read with the first append to it."""
    await fill(tmp_path)
    files = UnreadableFiles(f"/t-1/{RECORDS:020d}.snapshot")
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        assert await client.producers() == ONE_FAILS
        assert await client.produce() == ONE_FAILS
        assert await client.produce() == ONE_FAILS
        files.parts = ()
        assert await client.produce() == [ErrorCode.NONE] * 4
        assert await client.producers() == [ErrorCode.NONE] * 4
        assert [end for _, end in await client.ends()] == [
            RECORDS + 3,
            RECORDS + 1,
            RECORDS + 3,
            RECORDS + 3,
        ]


async def test_a_topic_made_anew_on_a_full_disk_costs_no_other_and_is_there_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tables say of an earlier topic of the name has to be taken out of them first."""
    monkeypatch.setattr(log_maintenance, "OPEN_RETRY_SECONDS", 0.05, raising=False)
    files = FullDisk()
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        await client.create()
        assert await client.produce() == [ErrorCode.NONE] * 4
        node.services.replicas.directory.checkpoint()
        await client.delete()
        files.full = (RECOVERY_POINTS, LOG_STARTS)
        await client.create("t", "u")
        assert await client.produce("u") == [ErrorCode.NONE] * 4
        assert await client.produce("t") == [STORAGE] * 4
        files.full = ()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await client.produce("t") != [ErrorCode.NONE] * 4:
                await asyncio.sleep(0.02)
        assert not node.services.replicas.offline


async def test_a_new_partition_that_is_offline_can_be_deleted(tmp_path: Path) -> None:
    files = FullDisk()
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        await client.create()
        assert await client.produce() == [ErrorCode.NONE] * 4
        replicas = node.services.replicas
        replicas.directory.checkpoint()
        await client.delete()
        files.full = (RECOVERY_POINTS, LOG_STARTS)
        await client.create()
        assert sorted(each.partition for each in replicas.offline) == list(PARTITIONS)
        await client.delete()
        files.full = ()
        await replicas.retry_never_opened()
        assert not replicas.offline
        assert await client.produce() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4


async def test_deletions_that_cannot_be_written_down_are_told_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    files = FullDisk()
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        await client.create()
        assert await client.produce() == [ErrorCode.NONE] * 4
        files.full = (LOG_STARTS,)
        assert await client.delete_records(1) == [STORAGE] * 4
        out_of_range = [ErrorCode.OFFSET_OUT_OF_RANGE] * 4
        assert await client.delete_records(2) == out_of_range, "each has its own reason"
        files.full = ()
        assert await client.delete_records(1) == [ErrorCode.NONE] * 4
        tables = read_offsets(files, str(tmp_path / LOG_STARTS))
        assert sorted(tables.values()) == [1] * 4


class NoRoomOnce(UnsyncedFileSystem):
    """One compacted segment cannot take its name at first."""

    has_refused = False

    def rename(self, old: str, new: str) -> None:
        if old.endswith(".log.swap") and not self.has_refused:
            self.has_refused = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), old)
        super().rename(old, new)


async def test_compaction_that_failed_half_way_goes_on_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = NoRoomOnce()
    caplog.set_level(logging.INFO)
    async with (
        running_node(
            tmp_path,
            files=files,
            log_cleanup_policy="compact",
            log_cleaner_backoff_ms="20",
            log_cleaner_min_cleanable_ratio="0.01",
            log_flush_offset_checkpoint_interval_ms="20",
        ) as node,
        Client(node) as client,
    ):
        await client.create(internal_segment_bytes="300")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "compacted: partition=t-" not in caplog.text or not files.has_refused:
                assert await client.produce() == [ErrorCode.NONE] * 4
                await asyncio.sleep(0.01)
            while any(each.log.is_half_replaced for each in node.services.replicas):
                await asyncio.sleep(0.01)
        failed = re.findall(r"compaction failed: partition=(t-\d)", caplog.text)
        assert len(failed) == 1
        (left,) = (each for each in tmp_path.iterdir() if each.name == failed[0])
        assert not list(left.glob("*.swap"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while f"compacted: partition={failed[0]}" not in caplog.text:
                assert await client.produce() == [ErrorCode.NONE] * 4
                await asyncio.sleep(0.01)
