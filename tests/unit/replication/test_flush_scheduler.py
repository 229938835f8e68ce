"""One flush covers everything appended meanwhile; each partition is told when it is on disk."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import pytest

from headrace.core.errors import ErrorCode, StorageError, StorageUnavailable
from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.real_files import RealFileSystem
from headrace.replication import flush_scheduler
from headrace.replication.flush_scheduler import FlushScheduler
from headrace.replication.partition import Partition
from tests.simulation.loop import VirtualLoop
from tests.support.logs import ToldClock, fill

T = TypeVar("T")


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class HeldExecutor:
    """Runs a call only when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self, call: Callable[[], T]) -> T:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return call()

    async def release(self, number: int = 0) -> None:
        self.waiting.pop(number).set_result(None)
        await turns()

    async def release_all(self) -> None:
        while self.waiting:
            await self.release()


class FakeJob:
    def __init__(self, log: "FakeLog") -> None:
        self.log = log
        self.end = log.end

    def sync(self) -> None:
        self.log.flushes += 1


class FakeLog:
    def __init__(self) -> None:
        self.flushes = 0
        self.end = Offset(0)
        self.refusals: list[Exception] = []
        self.failures: list[Exception] = []

    def begin_flush(self) -> FakeJob:
        if self.refusals:
            raise self.refusals.pop(0)
        return FakeJob(self)

    def end_flush(self, job: FakeJob, error: OSError | None) -> Offset:
        assert error is None
        if self.failures:
            raise self.failures.pop(0)
        return job.end


class FakePartition:
    def __init__(self) -> None:
        self.id = "t-0"
        self.log = FakeLog()
        self.appended_bytes = 0
        self.flushed_to = Offset(0)
        self.visible_bytes = 0
        self.flush_requester: object | None = None
        self.closed = False
        self.told: list[object] = []

    @property
    def is_flushed(self) -> bool:
        return self.flushed_to >= self.log.end

    @property
    def unflushed_bytes(self) -> int:
        return self.appended_bytes - self.visible_bytes

    def flushed(self, offset: Offset, appended_bytes: int) -> None:
        self.flushed_to, self.visible_bytes = offset, appended_bytes
        if self.is_flushed:
            self.visible_bytes = self.appended_bytes
            self.flush_requester = None
        self.told.append(offset)

    def fail_waiters(self, reason: ErrorCode) -> None:
        self.told.append(reason)


def append(
    commit: FlushScheduler, partition: FakePartition, requester: object | None, size: int = 100
) -> None:
    partition.log.end = Offset(partition.log.end + 1)
    partition.appended_bytes += size
    partition.flush_requester = requester
    commit.schedule(cast(Partition, partition), requester)


async def test_appends_during_a_flush_share_the_next_one() -> None:
    executor, partition = HeldExecutor(), FakePartition()
    commit = FlushScheduler(executor)
    append(commit, partition, "asker")
    await turns()
    for _ in range(3):
        append(commit, partition, "asker")
    await executor.release_all()
    assert partition.told == [1, 4]
    assert partition.log.flushes == 2


async def test_only_the_syncs_run_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended meanwhile is of the next flush, and nothing counts before the end."""
    end = property(lambda log: log.log_end_offset)
    monkeypatch.setattr(PartitionLog, "end", end, raising=False)
    files = RealFileSystem()
    log = PartitionLog.open(files, str(tmp_path / "t-0"), LogConfig(), ToldClock())
    partition, executor = FakePartition(), HeldExecutor()
    partition.log = cast(FakeLog, log)
    calls: list[str] = []

    async def run(call: Callable[[], T]) -> T:
        calls.append(call.__qualname__)
        fill(log, 1)
        return await HeldExecutor.run(executor, call)

    executor.run = run  # type: ignore[method-assign]  # watched
    commit = FlushScheduler(executor)
    fill(log, 2)
    commit.schedule(cast(Partition, partition), "asker")
    await turns()
    assert (log.log_end_offset, log.flushed_offset) == (3, 0)
    await executor.release()
    assert partition.told == [2]
    assert calls == ["FlushJob.sync"]


async def test_a_log_that_refuses_to_begin_fails_those_who_wait() -> None:
    executor, partition = HeldExecutor(), FakePartition()
    commit = FlushScheduler(executor)
    partition.log.refusals = [StorageError("the disk is gone")]
    append(commit, partition, "asker")
    await turns()
    assert partition.told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert executor.waiting == []


async def test_a_partition_is_told_while_others_are_still_being_flushed() -> None:
    executor = HeldExecutor()
    commit = FlushScheduler(executor)
    many = [FakePartition() for _ in range(100)]
    for partition in many:
        append(commit, partition, "many")
    await turns()
    under_way = len(executor.waiting)
    assert under_way == flush_scheduler.WORKERS
    one = FakePartition()
    append(commit, one, "one")
    for _ in range(under_way + 2):
        await executor.release()
    assert one.told == [1]
    assert sum(bool(each.told) for each in many) == under_way + 1
    await executor.release_all()
    assert all(each.told == [1] for each in many)


async def test_what_is_asked_for_right_after_the_last_flush_is_flushed_at_once() -> None:
    executor, first, second = HeldExecutor(), FakePartition(), FakePartition()
    commit = FlushScheduler(executor)
    append(commit, first, "asker")
    await turns()
    # Runs when the worker has ended, and before anybody has been told so.
    tell = first.flushed

    def flushed(offset: Offset, appended_bytes: int) -> None:
        tell(offset, appended_bytes)
        asyncio.get_running_loop().call_soon(append, commit, second, "asker")

    first.flushed = flushed  # type: ignore[method-assign]
    await executor.release()
    await executor.release()
    assert (first.told, second.told) == ([1], [1])


async def test_a_failing_disk_of_one_partition_does_not_hurt_the_other() -> None:
    executor, broken, sound = HeldExecutor(), FakePartition(), FakePartition()
    broken.log.failures = [StorageError("the disk is gone")]
    commit = FlushScheduler(executor)
    append(commit, broken, "asker")
    append(commit, sound, "asker")
    await turns()
    await executor.release_all()
    assert broken.told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert sound.told == [1]


async def test_partitions_that_fail_when_they_are_told_cost_the_others_no_flush(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Confused(FakePartition):
        def flushed(self, offset: Offset, appended_bytes: int) -> None:
            super().flushed(offset, appended_bytes)
            raise RuntimeError("a mistake of one partition")

    executor = HeldExecutor()
    commit = FlushScheduler(executor)
    confused = [Confused() for _ in range(flush_scheduler.WORKERS)]
    others = [FakePartition() for _ in range(10)]
    for partition in (*confused, *others):
        append(commit, partition, "asker")
    await turns()
    await executor.release_all()
    assert [each.told for each in others] == [[1]] * len(others)
    assert "a mistake of one partition" in caplog.text


async def test_a_deleted_partition_is_not_called_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor, gone = HeldExecutor(), FakePartition()
    gone.log.failures = [StorageError("t-0 is deleted")]
    commit = FlushScheduler(executor)
    append(commit, gone, "asker")
    await turns()
    gone.closed = True
    with caplog.at_level(logging.ERROR):
        await executor.release_all()
    assert not caplog.records


async def test_closing_finishes_what_was_asked_for() -> None:
    executor, awaited, idle = HeldExecutor(), FakePartition(), FakePartition()
    commit = FlushScheduler(executor)
    append(commit, awaited, "asker")
    append(commit, idle, None)
    closing = asyncio.create_task(commit.close())
    await turns()
    await executor.release_all()
    await closing
    assert (awaited.told, idle.told) == ([1], [1])


async def test_after_a_kill_nothing_is_flushed() -> None:
    executor, awaited, idle = HeldExecutor(), FakePartition(), FakePartition()
    commit = FlushScheduler(executor)
    append(commit, awaited, "asker")
    append(commit, idle, None)
    commit.kill()
    await turns()
    assert not executor.waiting


def in_virtual_time(scenario: Callable[[HeldExecutor], "object"]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario(HeldExecutor()))  # type: ignore[arg-type]
    finally:
        loop.close()


def test_what_nobody_waits_for_is_flushed_in_time() -> None:
    async def scenario(executor: HeldExecutor) -> None:
        commit, partition = FlushScheduler(executor), FakePartition()
        append(commit, partition, None)
        await asyncio.sleep(flush_scheduler.FLUSH_MS_MAX / 1000 - 0.01)
        append(commit, partition, None)
        assert not executor.waiting
        await asyncio.sleep(0.02)
        assert len(executor.waiting) == 1
        await executor.release_all()
        assert (partition.told, partition.log.flushes) == ([2], 1)

    in_virtual_time(scenario)


def test_every_partition_has_its_own_time() -> None:
    async def scenario(executor: HeldExecutor) -> None:
        commit, first, second = FlushScheduler(executor), FakePartition(), FakePartition()
        append(commit, first, None)
        await asyncio.sleep(flush_scheduler.FLUSH_MS_MAX / 2000)
        append(commit, second, None)
        await asyncio.sleep(flush_scheduler.FLUSH_MS_MAX / 2000 + 0.01)
        await executor.release_all()
        assert (first.told, second.told) == ([1], [])
        await asyncio.sleep(flush_scheduler.FLUSH_MS_MAX / 2000 + 0.01)
        await executor.release_all()
        assert (first.told, second.told) == ([1], [1])

    in_virtual_time(scenario)


async def test_much_that_nobody_waits_for_is_flushed_before_its_time() -> None:
    executor, partition = HeldExecutor(), FakePartition()
    commit = FlushScheduler(executor)
    append(commit, partition, None, size=flush_scheduler.FLUSH_BYTES_MAX - 1)
    await turns()
    assert not executor.waiting
    append(commit, partition, None)
    await turns()
    assert len(executor.waiting) == 1
    await executor.release_all()
    assert partition.told == [2]
    commit.kill()


async def test_a_worker_is_free_for_who_waits_while_large_files_are_flushed() -> None:
    executor, awaited = HeldExecutor(), FakePartition()
    commit = FlushScheduler(executor)
    for _ in range(20):
        append(commit, FakePartition(), None, size=flush_scheduler.FLUSH_BYTES_MAX)
    await turns()
    busy = len(executor.waiting)
    append(commit, awaited, "asker")
    await turns()
    assert len(executor.waiting) == busy + 1
    await executor.release(busy)
    assert awaited.told == [1]
    await executor.release_all()


def test_a_flush_that_could_not_be_tried_is_tried_again_and_its_waiters_wait() -> None:
    async def scenario(executor: HeldExecutor) -> None:
        commit, partition = FlushScheduler(executor), FakePartition()
        partition.log.failures = [StorageUnavailable("too many open files") for _ in range(3)]
        append(commit, partition, "asker")
        for _ in range(3):
            await turns()
            await executor.release_all()
            assert partition.told == []
            append(commit, partition, "asker")  # does not hurry it
            await turns()
            assert not executor.waiting
            await asyncio.sleep(flush_scheduler.RETRY_SECONDS + 0.01)
        await executor.release_all()
        assert partition.told == [4]

    in_virtual_time(scenario)


def test_flushes_put_off_are_told_once_for_all(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(executor: HeldExecutor) -> None:
        commit = FlushScheduler(executor)
        partitions = [FakePartition() for _ in range(30)]
        for partition in partitions:
            partition.log.failures = [StorageUnavailable("too many open files") for _ in range(3)]
            append(commit, partition, "asker")
        for _ in range(3 * len(partitions)):
            await turns()
            await executor.release_all()
            await asyncio.sleep(flush_scheduler.RETRY_SECONDS / 10)

    in_virtual_time(scenario)
    told = [each for each in caplog.records if "flushes put off" in each.message]
    assert 1 <= len(told) <= 1 + 3 * 30 * flush_scheduler.RETRY_SECONDS / 10
