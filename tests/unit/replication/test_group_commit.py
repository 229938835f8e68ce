"""One flush covers everything appended meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from headrace.core.errors import ErrorCode, StorageError
from headrace.core.ids import Offset
from headrace.replication.group_commit import GroupCommit
from headrace.replication.partition import Partition

T = TypeVar("T")


class HeldExecutor:
    """Runs a call only when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self, call: Callable[[], T]) -> T:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return call()

    async def release(self) -> None:
        self.waiting.pop(0).set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


class FakeLog:
    def __init__(self) -> None:
        self.flushes = 0
        self.end = Offset(0)
        self.failure: StorageError | None = None

    def flush(self) -> Offset:
        self.flushes += 1
        if self.failure is not None:
            raise self.failure
        return self.end


class FakePartition:
    def __init__(self) -> None:
        self.id = "t-0"
        self.log = FakeLog()
        self.appended_bytes = 0
        self.retired = False
        self.told: list[object] = []

    def flushed(self, offset: Offset, appended_bytes: int) -> None:
        self.told.append((offset, appended_bytes))

    def give_up(self, reason: ErrorCode) -> None:
        self.told.append(reason)


def mark(commit: GroupCommit, partition: FakePartition, end: int) -> None:
    partition.log.end = Offset(end)
    partition.appended_bytes += 100
    commit.mark(cast(Partition, partition))


async def test_appends_during_a_flush_share_the_next_one() -> None:
    executor, partition = HeldExecutor(), FakePartition()
    commit = GroupCommit(executor)
    mark(commit, partition, 1)
    await asyncio.sleep(0)
    for end in (2, 3, 4):
        mark(commit, partition, end)
    await executor.release()
    await executor.release()
    assert partition.log.flushes == 2
    assert partition.told[-1] == (4, 400)
    assert not executor.waiting


async def test_one_round_flushes_every_marked_partition() -> None:
    executor, first, second = HeldExecutor(), FakePartition(), FakePartition()
    commit = GroupCommit(executor)
    mark(commit, first, 1)
    mark(commit, second, 9)
    await asyncio.sleep(0)
    assert len(executor.waiting) == 1
    await executor.release()
    assert (first.told, second.told) == ([(1, 100)], [(9, 100)])


async def test_a_failing_disk_of_one_partition_does_not_hurt_the_other() -> None:
    executor, broken, sound = HeldExecutor(), FakePartition(), FakePartition()
    broken.log.failure = StorageError("the disk is gone")
    commit = GroupCommit(executor)
    mark(commit, broken, 1)
    mark(commit, sound, 2)
    await asyncio.sleep(0)
    await executor.release()
    assert broken.told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert sound.told == [(2, 100)]


async def test_a_partition_deleted_meanwhile_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor, deleted = HeldExecutor(), FakePartition()
    commit = GroupCommit(executor)
    mark(commit, deleted, 1)
    await asyncio.sleep(0)
    deleted.retired = True
    deleted.log.failure = StorageError("t-0 is deleted")
    await executor.release()
    assert (deleted.told, caplog.text) == ([], "")


async def test_closing_finishes_what_was_asked_for() -> None:
    executor, partition = HeldExecutor(), FakePartition()
    commit = GroupCommit(executor)
    mark(commit, partition, 1)
    closing = asyncio.create_task(commit.close())
    await asyncio.sleep(0)
    await executor.release()
    await closing
    assert partition.told == [(1, 100)]
