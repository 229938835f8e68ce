"""Cutting the new end of a log: data, indexes, epochs and producers follow."""

import errno
from collections.abc import Callable

import pytest

from headrace.core.errors import StorageError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.config import LogConfig
from headrace.log.flush_job import FlushJob
from headrace.log.names import RECOVERY_POINTS
from headrace.log.partition_log import PartitionLog
from tests.simulation.disk import Fault
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.support.log_checks import log_problems
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    append,
    batch,
    fill,
    open_directory,
    open_log,
    read_all,
    simulated_disk,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)


def test_a_cut_inside_a_segment_leaves_the_batches_before_it() -> None:
    log = open_log(simulated_disk(), SMALL)
    fill(log, 25)
    log.truncate_to(Offset(13))
    assert log.log_end_offset == 13
    assert [header.base_offset for header in read_all(log)] == list(range(13))
    assert append(log, batch()).first_offset == 13
    log.checkpoint()
    assert log_problems(log) == []


def test_a_cut_inside_a_batch_takes_the_whole_batch() -> None:
    log = open_log(simulated_disk())
    for _ in range(3):
        append(log, batch(4))
    log.truncate_to(Offset(6))
    assert log.log_end_offset == 4
    assert append(log, batch()).first_offset == 4


def test_a_cut_behind_the_end_does_nothing() -> None:
    log = open_log(simulated_disk())
    fill(log, 3)
    log.flush()
    log.truncate_to(Offset(3))
    assert (log.log_end_offset, log.flushed_offset) == (3, 3)


def test_what_was_cut_is_no_longer_flushed() -> None:
    log = open_log(simulated_disk())
    fill(log, 5)
    log.flush()
    log.truncate_to(Offset(2))
    assert log.flushed_offset == 2
    fill(log, 1)
    assert log.flush() == 3


def test_epochs_and_producers_follow_a_cut() -> None:
    log = open_log(simulated_disk(), SMALL)
    for sequence in range(12):
        append(log, batch(producer_id=5, sequence=sequence), epoch=1 + sequence // 4)
    append(log, batch(producer_id=6), epoch=3)
    log.truncate_to(Offset(6))
    assert log.latest_epoch == 2
    assert log.end_offset_for_epoch(LeaderEpoch(1)) == (1, 4)
    assert log.producers.get(6) is None
    assert append(log, batch(producer_id=5, sequence=5), epoch=4).duplicate
    assert append(log, batch(producer_id=5, sequence=6), epoch=4).first_offset == 6


def test_the_highest_timestamp_follows_a_cut() -> None:
    log = open_log(simulated_disk(), SMALL)
    for number in range(8):
        append(log, batch(timestamps=[START_MS + (5000 if number == 6 else number)]))
    log.truncate_to(Offset(6))
    found = log.max_timestamp(log.log_end_offset)
    assert found is not None
    assert (found.offset, found.timestamp) == (5, START_MS + 5)


def test_a_log_can_start_anew_at_any_offset() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    fill(log, 25)
    log.truncate_fully_and_start_at(Offset(100))
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    log.close()
    reopened = open_log(disk.after_kill(), SMALL, clean=True, recovery_point=100)
    assert reopened.log_end_offset == 100
    assert append(reopened, batch()).first_offset == 100


def test_files_of_cut_segments_go_after_the_delay() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(segment_bytes=300, file_delete_delay_ms=1000))
    fill(log, 10)
    log.truncate_to(Offset(1))
    assert any(name.endswith(".deleted") for name in disk.list_directory("/data/orders-0"))
    assert log.remove_deleted(START_MS + 999) == 0
    assert log.remove_deleted(START_MS + 1000) > 0
    assert not any(name.endswith(".deleted") for name in disk.list_directory("/data/orders-0"))


def test_appends_go_on_while_files_are_removed() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(segment_bytes=300, file_delete_delay_ms=0))
    fill(log, 10)
    log.truncate_to(Offset(1))
    waiting: list[bool] = []
    disk.observer = lambda operation: waiting.append(
        operation.kind == "remove" and log.lock.locked()
    )
    assert log.remove_deleted(START_MS) > 0
    assert waiting
    assert not any(waiting)


@pytest.mark.parametrize(
    ("fault", "truncate"),
    [
        (Fault("sync_directory", errno.EIO), lambda log: log.truncate_fully_and_start_at(0)),
        (Fault("rename", errno.EIO, "20.log"), lambda log: log.truncate_to(5)),
        (Fault("truncate", errno.EIO, "0.log"), lambda log: log.truncate_to(5)),
    ],
    ids=["sync", "rename", "cut"],
)
def test_a_log_truncated_half_way_takes_no_more_appends(
    fault: Fault, truncate: Callable[[PartitionLog], None]
) -> None:
    """They would go to a file that is on its way out."""
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    fill(log, 25)
    log.flush()
    disk.faults.rules = [fault]
    for attempt in (truncate, truncate, lambda log: fill(log, 1), PartitionLog.flush):
        with pytest.raises(StorageError):
            attempt(log)
        disk.faults.rules = []
    assert log.failure is not None


@pytest.mark.parametrize(
    ("fault", "start"),
    [(Fault("open", errno.EMFILE, "25.log"), 25), (Fault("rename", errno.EIO, "10.log"), 0)],
    ids=["new file", "second rename"],
)
def test_a_log_that_was_half_emptied_takes_nothing_before_it_is_emptied(
    fault: Fault, start: int
) -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    fill(log, 25)
    log.flush()
    disk.faults.rules = [fault]
    with pytest.raises(StorageError):
        log.truncate_fully_and_start_at(Offset(start))
    disk.faults.rules = []
    for attempt in (lambda log: fill(log, 1), PartitionLog.flush):
        with pytest.raises(StorageError):
            attempt(log)
    log.truncate_fully_and_start_at(Offset(start))
    assert append(log, batch()).first_offset == start
    log.flush()
    again = open_log(disk.after_kill(), SMALL)
    assert (again.log_start_offset, again.log_end_offset) == (start, start + 1)


def test_a_truncation_that_fails_before_it_began_may_be_tried_again() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    fill(log, 25)
    disk.faults.rules = [Fault("read", errno.EIO)]
    with pytest.raises(StorageError):
        log.truncate_to(Offset(5))
    disk.faults.rules = []
    log.truncate_to(Offset(5))
    assert append(log, batch()).first_offset == 5


def test_a_segment_that_cannot_be_renamed_is_deleted_the_next_time() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    fill(log, 25)
    log.advance_log_start(Offset(15))
    disk.faults.rules = [Fault("rename", errno.EIO, "00.log", times=1)]
    with pytest.raises(StorageError):
        log.apply_retention(START_MS, Offset(25))
    log.apply_retention(START_MS, Offset(25))
    left = [name for name in disk.list_directory("/data/orders-0") if name.endswith(".log")]
    assert left == ["00000000000000000010.log", "00000000000000000020.log"]


def test_a_recovery_point_that_could_not_be_lowered_is_lowered_by_the_next_attempt() -> None:
    """Otherwise it would vouch for batches that were never synced."""
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    fill(log, 25)
    directory.checkpoint()
    disk.faults.rules = [Fault("rename", errno.ENOSPC, RECOVERY_POINTS, times=1)]
    with pytest.raises(StorageError):
        log.truncate_to(Offset(5))
    log.truncate_to(Offset(5))
    table = disk.after_power_cut(LOSE_EVERYTHING).read_file(f"/data/{RECOVERY_POINTS}")
    assert b"orders 0 5" in table


def test_flushes_in_the_middle_of_a_truncation_do_not_make_it_forget_what_it_cut() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    fill(log, 20)
    directory.checkpoint()
    fill(log, 5)

    def flush_meanwhile() -> None:
        disk.pause_point = lambda: None
        log.flush()

    disk.pause_point = flush_meanwhile
    log.truncate_to(Offset(5))
    assert (log.log_end_offset, log.flushed_offset) == (5, 5)
    fill(log, 1)
    assert log.flushed_offset == 5
    assert log.flush() == 6


def test_a_log_that_starts_anew_knows_no_producers_and_no_epochs() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    append(log, batch(producer_id=5))
    log.checkpoint()
    log.truncate_fully_and_start_at(Offset(7))
    assert log.producers.get(5) is None
    assert log.latest_epoch == -1
    assert not [n for n in disk.list_directory(log.directory) if n.endswith(".snapshot")]


@pytest.mark.parametrize(
    "truncate",
    [
        lambda log: log.truncate_to(Offset(7)),
        lambda log: log.truncate_fully_and_start_at(Offset(7)),
    ],
    ids=["cut", "start anew"],
)
def test_a_flush_that_began_in_the_middle_of_a_truncation_counts_for_nothing(
    truncate: Callable[[PartitionLog], None],
) -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    fill(log, 20)
    directory.checkpoint()
    fill(log, 5)
    jobs: list[FlushJob] = []

    def begin_meanwhile() -> None:
        disk.pause_point = lambda: None
        jobs.append(log.begin_flush())

    disk.pause_point = begin_meanwhile
    truncate(log)
    fill(log, 1)
    jobs[0].sync()
    assert log.end_flush(jobs[0], None) == 7
    assert log.flush() == 8


def test_readers_find_no_batch_where_one_was_that_was_cut() -> None:
    log = open_log(simulated_disk())
    fill(log, 3, size=200)
    assert len(read_all(log)) == 3
    log.truncate_to(Offset(1))
    fill(log, 3, size=300)
    assert [header.base_offset for header in read_all(log, 310)] == [0, 1, 2, 3]
