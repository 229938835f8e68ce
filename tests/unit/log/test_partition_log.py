"""Append and read, as a leader, as a follower, as a consumer."""

import pytest

from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.header import iterate_headers, parse_header
from tests.support.logs import (
    START_MS,
    append,
    batch,
    fill,
    open_log,
    read_all,
    simulated_disk,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def read_bytes(log: PartitionLog, start: int, max_bytes: int, end: int | None = None) -> bytes:
    last = log.log_end_offset if end is None else Offset(end)
    return bytes(log.read(Offset(start), max_bytes, last, at_least_one=True))


def test_nothing_is_on_disk_before_the_first_append() -> None:
    disk = simulated_disk()
    log = open_log(disk)
    assert log.flush() == 0
    assert disk.list_directory("/") == []
    append(log, batch())
    assert disk.list_directory("/data/orders-0") == ["00000000000000000000.log"]


def test_offsets_and_epoch_are_written_into_the_batch() -> None:
    log = open_log(simulated_disk())
    append(log, batch(3))
    sent = batch(2)
    info = append(log, sent, epoch=4)
    assert (info.first_offset, info.last_offset, info.duplicate) == (3, 4, False)
    assert (info.append_time_ms, info.log_start_offset) == (-1, 0)
    stored = parse_header(sent)
    assert (stored.base_offset, stored.leader_epoch) == (3, 4)
    assert read_bytes(log, 3, 10_000) == bytes(sent)


def test_append_time_is_answered_where_the_batch_has_it() -> None:
    log = open_log(simulated_disk())
    assert append(log, batch(append_time=True)).append_time_ms == START_MS


def test_several_batches_go_into_one_write() -> None:
    disk = simulated_disk()
    log = open_log(disk)
    append(log, batch())
    buffer = bytearray(batch(2) + batch(3))
    before = len(disk.operations)
    info = log.append(list(iterate_headers(buffer)), memoryview(buffer), LeaderEpoch(1))
    assert [operation.kind for operation in disk.operations[before:]] == ["append"]
    assert (info.first_offset, info.last_offset) == (1, 5)
    assert [(h.base_offset, h.last_offset) for h in read_all(log)] == [(0, 0), (1, 2), (3, 5)]


def test_an_append_is_one_operation_on_the_disk() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=100))
    append(log, batch())
    before = len(disk.operations)
    for sequence in range(5):
        append(log, batch(producer_id=5, sequence=sequence))
    assert [operation.kind for operation in disk.operations[before:]] == ["append"] * 5


def test_a_duplicate_is_answered_and_not_written() -> None:
    log = open_log(simulated_disk())
    append(log, batch(2, producer_id=5))
    append(log, batch(1, producer_id=5, sequence=2))
    size = log.size_bytes
    again = append(log, batch(2, producer_id=5))
    assert (again.first_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert (log.size_bytes, log.log_end_offset) == (size, 3)


def test_a_refused_batch_leaves_no_trace() -> None:
    log = open_log(simulated_disk())
    append(log, batch(2, producer_id=5))
    with pytest.raises(ApiError) as refused:
        append(log, batch(producer_id=5, sequence=7))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 2
    assert append(log, batch(producer_id=5, sequence=2)).first_offset == 2


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(simulated_disk(), SMALL)
    with pytest.raises(ApiError) as refused:
        append(log, batch(value=b"x" * 2000))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_leader_of_an_older_epoch_cannot_append() -> None:
    log = open_log(simulated_disk())
    append(log, batch(), epoch=5)
    with pytest.raises(ApiError) as refused:
        append(log, batch(), epoch=4)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_a_read_returns_the_whole_batch_that_holds_the_offset() -> None:
    log = open_log(simulated_disk())
    append(log, batch(5))
    sent = batch(5)
    append(log, sent)
    assert read_bytes(log, 7, 10_000) == bytes(sent)


def test_a_read_is_cut_at_a_batch_boundary() -> None:
    log = open_log(simulated_disk())
    fill(log, 300)
    one = len(read_bytes(log, 0, 1))
    assert len(read_bytes(log, 0, 10 * one - 1)) == 9 * one
    assert len(read_bytes(log, 0, 10 * one)) == 10 * one
    assert len(read_bytes(log, 5, 250 * one + 7)) == 250 * one


def test_a_read_stops_below_its_end_even_in_the_middle_of_a_batch() -> None:
    log = open_log(simulated_disk())
    for _ in range(100):
        append(log, batch(3))
    assert read_bytes(log, 0, 10**6, 3) == read_bytes(log, 0, 1)
    assert read_bytes(log, 0, 10**6, 5) == read_bytes(log, 0, 1)
    assert read_bytes(log, 0, 10**6, 2) == b""
    *_, (_, last) = iterate_headers(read_bytes(log, 0, 10**6, 290))
    assert last.last_offset == 287


@pytest.mark.parametrize("max_bytes", range(7000, 7400, 40))
def test_reads_of_many_small_batches_connect(max_bytes: int) -> None:
    log = open_log(simulated_disk(), LogConfig(index_interval_bytes=50))
    fill(log, 400)
    data = read_bytes(log, 0, max_bytes)
    # The place where the read ended is remembered now, and must be the right one.
    for offset in range(75, 60, -1):
        assert parse_header(read_bytes(log, offset, 1)).base_offset == offset
    assert [header.base_offset for header in read_all(log, len(data))] == list(range(400))


def test_a_large_first_batch_comes_whole_or_not_at_all() -> None:
    log = open_log(simulated_disk())
    append(log, batch(value=b"x" * 500))
    assert len(read_bytes(log, 0, 10)) > 500
    assert log.read(Offset(0), 10, Offset(1), at_least_one=False) == b""
    assert len(read_bytes(log, 0, 0)) > 500


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = open_log(simulated_disk())
    append(log, batch(3))
    log.advance_log_start(Offset(2))
    assert read_bytes(log, 3, 100) == b""
    for offset in (1, 4):
        with pytest.raises(OffsetOutOfRange):
            read_bytes(log, offset, 100)


def test_a_reader_that_follows_the_writer_needs_one_read_of_the_file() -> None:
    disk = simulated_disk()
    log = open_log(disk)
    fill(log, 50)
    read_bytes(log, 30, 10**6)
    reads: list[int] = []
    segment = log.segments.all[0]
    inner = segment.file.read
    segment.file.read = lambda at, size: reads.append(size) or inner(at, size)  # type: ignore[method-assign, func-returns-value, assignment]  # counts calls
    for _ in range(10):
        offset = log.log_end_offset
        fill(log, 1)
        assert read_bytes(log, offset, 10**6)
    assert len(reads) == 10


def test_batches_of_a_leader_keep_their_offsets_and_epochs() -> None:
    leader, follower = open_log(simulated_disk()), open_log(simulated_disk(), SMALL)
    for number in range(30):
        sent = batch(2, producer_id=5, sequence=number * 2)
        append(leader, sent, epoch=1 if number < 12 else 3)
    fetched = bytearray(leader.read(Offset(0), 10**6, leader.log_end_offset))
    follower.append_as_follower(memoryview(fetched))
    assert read_all(follower) == read_all(leader)
    assert len(follower.segments) > 2
    assert follower.end_offset_for_epoch(LeaderEpoch(1)) == (1, 24)
    again = append(follower, batch(2, producer_id=5, sequence=58), epoch=5)
    assert (again.duplicate, again.first_offset) == (True, 58)


def test_a_follower_refuses_what_it_has_already() -> None:
    log = open_log(simulated_disk())
    append(log, batch(3))
    with pytest.raises(ApiError):
        log.append_as_follower(memoryview(batch(1)))
    assert log.log_end_offset == 3


def test_a_follower_accepts_gaps() -> None:
    log = open_log(simulated_disk())
    first, second = batch(2), batch(2)
    second[0:8] = (10).to_bytes(8, "big")
    log.append_as_follower(memoryview(bytearray(first + second)))
    assert log.log_end_offset == 12
    assert read_bytes(log, 5, 10**6) == bytes(second)


def test_an_offset_that_was_compacted_away_is_read_on_in_the_next_segment() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(segment_bytes=500))
    for start in (0, 20):  # what was between is gone
        data = batch(10, value=b"v" * 20)
        data[:8] = start.to_bytes(8, "big")
        log.append_as_follower(memoryview(data))
    log.flush()
    log.close()
    # As compaction leaves it: the first segment ends before the second one begins.
    first, second = (f"/data/orders-0/{start:020}.log" for start in (10, 20))
    disk.rename(first, second)
    log = open_log(disk, recovery_point=30, clean=True)
    assert [each.base_offset for each in log.segments] == [0, 20]
    for _ in range(2):
        assert parse_header(read_bytes(log, 10, 10_000)).base_offset == 20
        # The last batch of a segment comes whole, and its end is remembered as a boundary.
        assert parse_header(read_bytes(log, 0, 1)).base_offset == 0
