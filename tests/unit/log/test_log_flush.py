"""A flush in three phases: what a job syncs is fixed when it begins, and what it is worth in the
end depends on what has happened meanwhile."""

import errno

import pytest

from headrace.core.errors import StorageError, StorageUnavailable
from headrace.core.files import NotTried
from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.flush_job import SyncGuard
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.support.logs import START_MS, fill, open_log, simulated_disk

FIRST = "/data/orders-0/00000000000000000000.log"
SMALL = LogConfig(segment_bytes=350, file_delete_delay_ms=0)


def syncs(disk: SimulatedFileSystem, since: int = 0) -> list[str]:
    return [o.path for o in disk.operations[since:] if o.kind in ("sync", "sync_directory")]


def disk_with_directory() -> SimulatedFileSystem:
    disk = simulated_disk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def test_beginning_and_ending_a_flush_does_not_touch_the_disk() -> None:
    disk = disk_with_directory()
    log = open_log(disk)
    fill(log, 2)
    before = len(disk.operations)
    job = log.begin_flush()
    assert len(disk.operations) == before
    job.sync()
    assert syncs(disk, before) == [FIRST, "/data", "/data/orders-0"]
    before = len(disk.operations)
    assert log.flushed_offset == 0
    assert log.end_flush(job, None) == 2
    assert len(disk.operations) == before


def test_what_a_job_syncs_is_fixed_when_it_begins() -> None:
    disk = disk_with_directory()
    log = open_log(disk, SMALL)
    fill(log, 3)
    job = log.begin_flush()
    fill(log, 6)
    before = len(disk.operations)
    job.sync()
    assert syncs(disk, before) == [FIRST, "/data", "/data/orders-0"]
    assert log.end_flush(job, None) == 3
    assert log.flush() == 9, "with the names of the segments that were new by then"
    again = open_log(disk.copy().after_power_cut(LOSE_EVERYTHING), SMALL)
    assert again.log_end_offset == 9


def test_names_that_are_new_at_the_end_of_a_job_are_for_the_next_one() -> None:
    disk = disk_with_directory()
    log = open_log(disk, SMALL)
    fill(log, 3)
    job = log.begin_flush()
    job.sync()
    fill(log, 6)
    log.end_flush(job, None)
    assert log.flush() == 9
    assert open_log(disk.copy().after_power_cut(LOSE_EVERYTHING), SMALL).log_end_offset == 9


def test_each_of_two_jobs_at_a_time_is_right_alone() -> None:
    disk = disk_with_directory()
    log = open_log(disk, SMALL)
    fill(log, 5)
    first = log.begin_flush()
    fill(log, 5)
    second = log.begin_flush()
    second.sync()
    assert log.end_flush(second, None) == 10
    assert open_log(disk.copy().after_power_cut(LOSE_EVERYTHING), SMALL).log_end_offset == 10
    first.sync()
    assert log.end_flush(first, None) == 10


@pytest.mark.parametrize("step", ["sync", "sync_directory"])
def test_what_failed_in_one_job_is_not_believed_in_the_next(step: str) -> None:
    """The kernel says so once; the other job was on its way by then."""
    disk = disk_with_directory()
    log = open_log(disk)
    fill(log, 2)
    first, second = log.begin_flush(), log.begin_flush()
    disk.faults.rules = [Fault(step, errno.EIO, times=1)]
    errors: list[OSError | None] = []
    for job in (first, second):
        try:
            job.sync()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    with pytest.raises(StorageError):
        log.end_flush(second, errors[1])
    assert log.flushed_offset == 0
    assert log.failure is not None


def test_a_job_counts_for_nothing_after_a_truncation() -> None:
    log = open_log(simulated_disk())
    fill(log, 5)
    job = log.begin_flush()
    job.sync()
    log.truncate_to(Offset(2))
    fill(log, 4)
    assert log.end_flush(job, None) == 0
    assert log.flush() == 6


def test_a_segment_that_is_gone_fails_nobody() -> None:
    disk = disk_with_directory()
    log = open_log(disk, LogConfig(segment_bytes=350, retention_ms=1, file_delete_delay_ms=0))
    fill(log, 8)
    job = log.begin_flush()
    log.apply_retention(START_MS + 10**6, Offset(8))
    log.remove_deleted()
    job.sync()
    assert job.failed
    assert log.end_flush(job, None) == 8
    assert log.failure is None


def test_a_failure_that_is_final_counts_more_than_one_that_was_put_off() -> None:
    disk = disk_with_directory()
    log = open_log(disk, SMALL)
    fill(log, 5)
    job = log.begin_flush()
    disk.faults.rules = [
        Fault("sync", errno.EMFILE, "00.log"),
        Fault("sync", errno.EIO, "03.log"),
    ]
    job.sync()
    with pytest.raises(StorageError) as failed:
        log.end_flush(job, None)
    assert not isinstance(failed.value, StorageUnavailable)
    assert log.failure is not None


def test_a_checkpoint_that_a_truncation_overtook_moves_nothing() -> None:
    disk = disk_with_directory()
    log = open_log(disk, SMALL)
    fill(log, 8)
    flush = log.flush_state
    log.flush()
    truncations = flush.truncations
    log.truncate_to(Offset(4))
    fill(log, 4)
    log.flush()
    assert flush.checkpointed(Offset(8), 0, truncations) == 0
    assert flush.checkpointed(Offset(8), 0, flush.truncations) == 8


def test_a_guard_tells_one_thing_from_another_and_forgets_what_was_put_off() -> None:
    guard = SyncGuard()
    guard.note("a", OSError(errno.EIO, "broken"))
    guard.note("b", NotTried(errno.EMFILE, "no descriptor"))
    guard.require_sound("b")
    with pytest.raises(OSError, match="an earlier sync failed"):
        guard.require_sound("a")
