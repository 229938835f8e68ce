"""What counts as flushed, and what a failing disk does to a log."""

import errno
import threading

import pytest

from headrace.core.errors import ErrorCode, StorageError, StorageUnavailable
from headrace.core.files import NOT_TRIED
from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.names import PARTITION_METADATA
from headrace.log.partition_log import PartitionLog
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    ToldClock,
    append,
    batch,
    fill,
    open_directory,
    open_log,
    simulated_disk,
)

SMALL = LogConfig(segment_bytes=350, file_delete_delay_ms=0)


def syncs(disk: SimulatedFileSystem, since: int = 0) -> list[str]:
    return [o.path for o in disk.operations[since:] if o.kind in ("sync", "sync_directory")]


def log_on(disk: SimulatedFileSystem, config: LogConfig | None = None) -> PartitionLog:
    return open_log(disk, config)


def test_the_first_flush_syncs_data_and_names() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    assert log.flush() == 2
    first = "/data/orders-0/00000000000000000000.log"
    assert syncs(disk) == [first, "/data", "/data/orders-0"]


def test_a_later_flush_syncs_only_the_data() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    log.flush()
    fill(log, 3)
    since = len(disk.operations)
    assert log.flush() == 5
    assert log.flush() == 5
    assert syncs(disk, since) == ["/data/orders-0/00000000000000000000.log"]


def test_a_flush_covers_every_segment_since_the_last_one() -> None:
    disk = simulated_disk()
    log = log_on(disk, SMALL)
    fill(log, 2)
    log.flush()
    fill(log, 8)
    since = len(disk.operations)
    log.flush()
    names = [path.rpartition("/")[2] for path in syncs(disk, since)]
    assert names == [f"{base:020d}.log" for base in (0, 3, 6, 9)] + ["orders-0"]


def test_appends_go_on_while_a_flush_waits_for_the_disk() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    disk.pause_point = lambda: fill(log, 1)
    flushed = log.flush()
    disk.pause_point = lambda: None
    assert flushed == 2
    assert log.log_end_offset > 2
    assert log.flush() == log.log_end_offset


def test_a_truncation_during_a_flush_takes_its_promise_back() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 5)

    def truncate_meanwhile() -> None:
        disk.pause_point = lambda: None
        log.truncate_to(Offset(2))
        fill(log, 4)

    disk.pause_point = truncate_meanwhile
    assert log.flush() <= 2
    assert log.flush() == 6


def test_a_segment_deleted_during_a_flush_is_no_failure() -> None:
    disk = simulated_disk()
    log = log_on(disk, LogConfig(segment_bytes=350, retention_ms=1, file_delete_delay_ms=0))
    fill(log, 8)

    def delete_meanwhile() -> None:
        disk.pause_point = lambda: None
        log.apply_retention(START_MS + 10**6, Offset(8))
        log.remove_deleted(START_MS + 10**7)

    disk.pause_point = delete_meanwhile
    log.flush()
    assert log.failure is None
    assert log.flush() == 8


def test_a_failed_sync_is_final_until_the_log_is_opened_again() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    log.flush()
    fill(log, 1)
    disk.faults.rules = [Fault("sync", errno.EIO, times=1)]
    with pytest.raises(StorageError) as failed:
        log.flush()
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.flushed_offset == 2
    for refused in (log.flush, lambda: append(log, batch()), log.checkpoint):
        with pytest.raises(StorageError):
            refused()
    assert log.read(Offset(0), 10**6, Offset(2))
    with pytest.raises(StorageError):
        log.close()


def test_a_failed_directory_sync_is_final_too() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    disk.faults.rules = [Fault("sync_directory", errno.EIO, times=1)]
    with pytest.raises(StorageError):
        log.flush()
    with pytest.raises(StorageError):
        log.flush()
    assert log.flushed_offset == 0


@pytest.mark.parametrize("error", sorted(NOT_TRIED))
@pytest.mark.parametrize("step", ["sync", "sync_directory"])
def test_a_sync_that_could_not_be_tried_is_tried_again(step: str, error: int) -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    disk.faults.rules = [Fault(step, error, times=1)]
    for put_off in (log.flush, log.checkpoint):
        disk.faults.rules[0].times = 1
        with pytest.raises(StorageUnavailable):
            put_off()
        assert log.failure is None
        assert log.flushed_offset == 0
    fill(log, 1)
    assert log.flush() == 3
    # With its name, or a power cut would take all of it.
    disk.faults.rules = [Fault("sync_directory", errno.EIO)]
    assert log.flush() == 3


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    append(log, batch(producer_id=5))
    disk.faults.rules = [Fault("write", errno.ENOSPC)]
    with pytest.raises(StorageError):
        append(log, batch(producer_id=5, sequence=1))
    assert log.log_end_offset == 1
    assert log.read(Offset(0), 10**6, Offset(1))
    disk.faults.rules = []
    assert append(log, batch(producer_id=5, sequence=1)).first_offset == 1
    assert log.flush() == 2


def test_a_disk_that_is_full_when_a_segment_rolls_refuses_that_append() -> None:
    disk = simulated_disk()
    log = log_on(disk, SMALL)
    fill(log, 3)
    disk.faults.rules = [Fault("open", errno.ENOSPC, ".log")]
    with pytest.raises(StorageError):
        fill(log, 1)
    disk.faults.rules = []
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_roll_that_fails_half_way_leaves_no_file_that_would_end_the_log() -> None:
    disk = simulated_disk()
    config = LogConfig(segment_bytes=1000)
    log = log_on(disk, config)
    fill(log, 3)
    disk.write_file("/data/orders-0/00000000000000000003.index", b"left over")
    disk.faults.rules = [Fault("remove", errno.EIO, ".index")]
    with pytest.raises(StorageError):
        fill(log, 1, size=900)
    disk.faults.rules = []
    fill(log, 2)
    assert log.flush() == 5
    assert open_log(disk.after_kill(), config, recovery_point=5).log_end_offset == 5


def test_a_roll_that_cannot_take_its_file_back_stops_the_log() -> None:
    disk = simulated_disk()
    log = log_on(disk, LogConfig(segment_bytes=1000))
    fill(log, 3)
    disk.write_file("/data/orders-0/00000000000000000003.index", b"left over")
    disk.faults.rules = [Fault("remove", errno.EIO)]
    with pytest.raises(StorageError):
        fill(log, 1, size=900)
    disk.faults.rules = []
    with pytest.raises(StorageError):
        fill(log, 1)
    assert log.read(Offset(0), 10**6, Offset(3))


def test_a_first_file_that_is_made_at_the_second_try_is_synced_with_its_name() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    disk.make_directory("/data/orders-0")
    disk.write_file("/data/orders-0/00000000000000000000.index", b"left over")
    disk.faults.rules = [Fault("remove", errno.EIO, times=1)]
    with pytest.raises(StorageError):
        fill(log, 1)
    fill(log, 1)
    since = len(disk.operations)
    log.flush()
    assert "/data/orders-0" in syncs(disk, since)


def test_a_new_segment_is_synced_with_its_name_though_the_old_one_kept_its_space() -> None:
    disk = simulated_disk()
    log = log_on(disk, LogConfig(segment_bytes=350, preallocate=True))
    fill(log, 3)
    log.flush()
    disk.faults.rules = [Fault("truncate", errno.EIO, ".log", times=1)]
    with pytest.raises(StorageError):
        fill(log, 1)
    fill(log, 1)
    since = len(disk.operations)
    log.flush()
    assert syncs(disk, since) == ["/data/orders-0/00000000000000000003.log", "/data/orders-0"]


def test_a_read_error_is_a_storage_error() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 2)
    disk.faults.rules = [Fault("read", errno.EIO)]
    with pytest.raises(StorageError):
        log.read(Offset(0), 100, Offset(2))


def test_a_checkpoint_goes_no_further_than_the_indexes_it_has_written() -> None:
    disk = simulated_disk()
    log = log_on(disk, LogConfig(segment_bytes=350, index_interval_bytes=50))
    fill(log, 8)

    def append_meanwhile() -> None:
        disk.pause_point = lambda: None
        fill(log, 8)

    disk.pause_point = append_meanwhile
    assert log.checkpoint() == 8
    assert (log.flushed_offset, log.log_end_offset) == (16, 16)
    assert log.checkpoint() == 16


def test_flush_messages_and_flush_ms_ask_for_a_flush() -> None:
    clock = ToldClock()
    log = open_log(simulated_disk(), LogConfig(flush_messages=3, flush_ms=1000), clock=clock)
    assert not log.flush_due(START_MS + 10**6)
    fill(log, 2)
    assert not log.flush_due(START_MS + 999)
    assert log.flush_due(START_MS + 1000)
    fill(log, 1)
    assert log.flush_due(START_MS)
    log.flush()
    assert not log.flush_due(START_MS + 10**6)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_first_flush_that_could_not_say_whose_the_log_is_may_be_tried_again(error: int) -> None:
    """No sync has failed, so nothing is uncertain."""
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    fill(log, 2)
    disk.remove(f"{log.directory}/{PARTITION_METADATA}")
    disk.faults.rules = [Fault("write", error, PARTITION_METADATA)]
    for _ in range(2):
        with pytest.raises(StorageError):
            log.flush()
    assert log.failure is None
    disk.faults.rules = []
    fill(log, 1)
    assert log.flush() == 3
    again = open_directory(disk.after_power_cut(LOSE_EVERYTHING))
    assert again.create(ORDERS, TOPIC_ID, SMALL).log_end_offset == 3


def test_flushes_of_two_threads_take_turns() -> None:
    disk = simulated_disk()
    log = log_on(disk)
    fill(log, 3)
    inside: list[int] = []
    most: list[int] = []

    def watch() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    disk.pause_point = watch
    threads = [threading.Thread(target=log.flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert log.flushed_offset == 3
