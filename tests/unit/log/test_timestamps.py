"""Records found by time."""

import pytest

from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.patch import refresh_crc
from tests.support.logs import START_MS, append, batch, open_log, simulated_disk

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def log_of(*batches: list[int], codec: int = 0) -> PartitionLog:
    """A log of batches whose records have these times after START."""
    log = open_log(simulated_disk(), SMALL)
    for stamps in batches:
        append(log, batch(timestamps=[START_MS + stamp for stamp in stamps], codec=codec))
    return log


def first(log: PartitionLog, after: int, end: int | None = None) -> tuple[int, int] | None:
    last = log.log_end_offset if end is None else Offset(end)
    found = log.find_by_timestamp(START_MS + after, last)
    return None if found is None else (found.offset, found.timestamp - START_MS)


@pytest.mark.parametrize("codec", range(5))
def test_the_first_record_at_or_after_a_time_is_found_inside_its_batch(codec: int) -> None:
    log = log_of([0, 10, 20], [30, 40, 50], [60, 70, 80], codec=codec)
    assert first(log, -1000) == (0, 0)
    assert first(log, 20) == (2, 20)
    assert first(log, 41) == (5, 50)
    assert first(log, 80) == (8, 80)
    assert first(log, 81) is None


def test_times_out_of_order_give_the_first_offset_not_the_first_time() -> None:
    log = log_of([100], [50], [200], [10], [150], [300])
    assert first(log, 60) == (0, 100)
    assert first(log, 101) == (2, 200)
    assert first(log, 201) == (5, 300)


def test_records_at_or_past_the_end_are_not_shown() -> None:
    log = log_of([0], [10], [20])
    assert first(log, 15, end=2) is None
    assert first(log, 10, end=2) == (1, 10)


def test_deleted_records_are_not_found() -> None:
    log = log_of([0, 5], [10], [20])
    log.advance_log_start(Offset(1))
    assert first(log, 0) == (1, 5)
    log.advance_log_start(Offset(3))
    assert first(log, 0) == (3, 20)


def test_the_highest_timestamp_is_that_of_its_first_record() -> None:
    log = log_of([0, 90, 10], [20], [90], [30])
    found = log.max_timestamp(log.log_end_offset)
    assert found == (1, START_MS + 90, 1)
    assert log.max_timestamp(Offset(1)) is None
    assert open_log(simulated_disk()).max_timestamp(Offset(0)) is None


def test_append_time_belongs_to_every_record_of_the_batch() -> None:
    log = open_log(simulated_disk(), SMALL)
    append(log, batch(timestamps=[START_MS, START_MS + 7], append_time=True))
    log.advance_log_start(Offset(1))
    assert log.find_by_timestamp(START_MS + 7, Offset(2)) == (1, START_MS + 7, 1)


def test_a_batch_whose_records_make_no_sense_is_found_as_a_whole() -> None:
    log = open_log(simulated_disk(), SMALL)
    nonsense = batch(timestamps=[START_MS, START_MS + 5])
    nonsense[61:70] = b"\xff" * 9
    refresh_crc(nonsense, 0)
    append(log, nonsense)
    assert log.find_by_timestamp(START_MS + 5, Offset(2)) == (1, START_MS + 5, 1)


def test_times_are_found_in_every_segment_after_a_restart() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    for number in range(40):
        append(log, batch(timestamps=[START_MS + number * 10]))
    log.close()
    log = open_log(disk.after_kill(), SMALL, clean=True, recovery_point=40)
    for number in range(40):
        assert first(log, number * 10 - 5) == (number, number * 10)
