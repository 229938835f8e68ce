"""A disk that fails now and then, under everything a broker does: when it is well again so is all.

Syncs do not fail here: one that has failed is final until a restart, and has its own tests.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.client import NewTopic, TopicPartition
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.files import Buffer, NotTried
from headrace.gateway import Gateway, OutRecord
from headrace.log.real_files import RealFile
from headrace.node import log_maintenance
from headrace.testing.unsynced_files import UnsyncedFile, UnsyncedFileSystem
from tests.support.gateways import local_gateway
from tests.support.nodes import running_node

SETTINGS = {
    "log_flush_offset_checkpoint_interval_ms": "50",
    "log_cleaner_backoff_ms": "40",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_retention_check_interval_ms": "60",
    "log_segment_delete_delay_ms": "0",
    "offsets_topic_num_partitions": "4",
}
PARTITIONS = 3
GROUPS = [f"g{number}" for number in range(7)]
COMMITTED = TopicPartition("deleted", 0)
CALL_SECONDS = 1
PATIENCE_SECONDS = 60


class FailingFile(UnsyncedFile):
    __slots__ = ()

    def append(self, buffers: Sequence[Buffer]) -> int:
        _fail_sometimes(self._files, self.path)
        return super().append(buffers)

    def read(self, position: int, size: int) -> bytes:
        _fail_sometimes(self._files, self.path)
        return super().read(position, size)

    def truncate(self, size: int) -> None:
        _fail_sometimes(self._files, self.path)
        super().truncate(size)


class FailingDisk(UnsyncedFileSystem):
    """Fails one call of five while it is told to."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.is_ill = False
        self.failures = 0

    def open(self, path: str, *, create: bool = False) -> RealFile:
        _fail_sometimes(self, path, (errno.EMFILE,))
        file = super().open(path, create=create)
        file.__class__ = FailingFile
        return file

    def read_file(self, path: str) -> bytes:
        _fail_sometimes(self, path)
        return super().read_file(path)

    def write_file(self, path: str, data: Buffer) -> None:
        _fail_sometimes(self, path)
        super().write_file(path, data)

    def rename(self, old: str, new: str) -> None:
        _fail_sometimes(self, old)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        _fail_sometimes(self, path)
        super().remove(path)

    def make_directory(self, path: str) -> None:
        _fail_sometimes(self, path)
        super().make_directory(path)


def _fail_sometimes(
    disk: Any, path: str, errors: Sequence[int] = (errno.ENOSPC, errno.EIO, errno.EMFILE)
) -> None:
    if disk.is_ill and disk.random.random() < 0.2:
        disk.failures += 1
        error = disk.random.choice(errors)
        kind = NotTried if error == errno.EMFILE else OSError
        raise kind(error, os.strerror(error), path)


class Work:
    """Producing, committing, creating and deleting; what was acknowledged is remembered."""

    def __init__(self, gateway: Gateway, disk: FailingDisk) -> None:
        self.gateway = gateway
        self.random = disk.random
        self.number = 0
        self.made: set[str] = {"compacted", "deleted"}
        self.acknowledged: set[tuple[str, int, int]] = set()

    async def begin(self) -> None:
        small = {"internal.segment.bytes": "600"}
        await self.gateway.admin.create_topics(
            [
                NewTopic("compacted", PARTITIONS, configs={"cleanup.policy": "compact", **small}),
                NewTopic("deleted", PARTITIONS, configs=small),
            ]
        )

    async def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.number += 1
            await self._try(self.produce(self.random.choice(sorted(self.made))))
            if self.number % 5 == 0:
                await self._try(self.commit(self.random.choice(GROUPS), self.number))
            if self.number % 11 == 0:
                await self._try(self.make_or_delete(f"t{self.random.randrange(3)}"))

    async def _try(self, call: Awaitable[object]) -> None:
        with suppress(HeadraceError, TimeoutError):
            await asyncio.wait_for(call, CALL_SECONDS)

    async def produce(self, topic: str) -> bool:
        """Whether all of it was written."""
        records = [
            OutRecord(b"%d" % self.number, b"%d" % self.random.randrange(9), partition)
            for partition in range(PARTITIONS)
        ]
        outcomes = await self.gateway.produce(topic, records, timeout_ms=400)
        for outcome in outcomes:
            if outcome.error is None and topic != "compacted":
                self.acknowledged.add((topic, outcome.partition, outcome.offset))
        return all(outcome.error is None for outcome in outcomes)

    async def commit(self, group: str, offset: int) -> None:
        await self.gateway.commit(group, {COMMITTED: offset})

    async def make_or_delete(self, topic: str) -> None:
        if topic in self.made:
            self.made.discard(topic)
            self.acknowledged = {each for each in self.acknowledged if each[0] != topic}
            await self.gateway.admin.delete_topics([topic])
        else:
            await self.gateway.admin.create_topics([NewTopic(topic, PARTITIONS)])
            self.made.add(topic)

    async def is_well(self) -> bool:
        """Whether every topic takes records, and every group its offsets."""
        try:
            there = [topic.name for topic in await self.gateway.admin.list_topics()]
            written = [await self.produce(topic) for topic in there]
            for group in GROUPS:
                await asyncio.wait_for(self.commit(group, self.number), CALL_SECONDS)
            return all(written)
        except (HeadraceError, TimeoutError):
            return False


async def lost(gateway: Gateway, acknowledged: set[tuple[str, int, int]]) -> list[object]:
    missing: list[object] = []
    for topic, partition, offset in sorted(acknowledged):
        try:
            found = await gateway.read(topic, partition, offset=offset, max_records=1)
        except HeadraceError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue  # its deletion was not answered, and took place
        if [record.offset for record in found.records] != [offset]:
            missing.append((topic, partition, offset))
    return missing


@pytest.mark.parametrize("seed", [20, 21])
async def test_all_is_well_again_when_the_disk_is_and_nothing_acknowledged_is_lost(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_maintenance, "OPEN_RETRY_SECONDS", 0.1)
    disk = FailingDisk(seed)
    async with (
        running_node(tmp_path, files=disk, **SETTINGS) as node,  # type: ignore[arg-type]  # all are keys
        local_gateway(node) as gateway,
    ):
        work = Work(gateway, disk)
        await work.begin()
        await work.go_on(40)
        disk.is_ill = True
        await work.go_on(150)
        disk.is_ill = False
        assert disk.failures > 100
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await work.is_well():
                await asyncio.sleep(0.1)
        assert not await lost(gateway, work.acknowledged)
    async with (
        running_node(tmp_path, **SETTINGS) as node,  # type: ignore[arg-type]  # all are keys
        local_gateway(node) as gateway,
    ):
        assert not await lost(gateway, work.acknowledged)
        for group in GROUPS:
            assert (await gateway.offsets(group))[COMMITTED].offset == work.number
