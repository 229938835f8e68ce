"""What a broker writes into a batch it accepts."""

from __future__ import annotations

from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import crc_matches, parse_header
from headrace.protocol.records.patch import assign_offsets, clear_append_time, set_append_time

ROWS = [Record(0, 1000, b"a", b"1"), Record(1, 1005, b"b", b"2")]
IN_FRONT = b"other bytes"


def _buffer() -> tuple[bytearray, int]:
    return bytearray(IN_FRONT) + encode_batch(ROWS) + b"behind", len(IN_FRONT)


def test_offsets_and_epoch_move_without_a_new_crc() -> None:
    buffer, position = _buffer()
    before = parse_header(buffer, position)
    assign_offsets(memoryview(buffer), position, 5_000_000_000, 17)
    header = parse_header(buffer, position)
    assert header == before._replace(base_offset=5_000_000_000, leader_epoch=17)
    assert crc_matches(memoryview(buffer), position, header)
    assert [record.offset for record in iterate_records(buffer, position)] == [
        5_000_000_000,
        5_000_000_001,
    ]
    assert buffer.startswith(IN_FRONT)
    assert buffer.endswith(b"behind")


def test_append_time_is_every_records_time() -> None:
    buffer, position = _buffer()
    set_append_time(buffer, position, 123_456)
    header = parse_header(buffer, position)
    assert (header.uses_append_time, header.max_timestamp) == (True, 123_456)
    assert crc_matches(memoryview(buffer), position, header)
    assert {record.timestamp for record in iterate_records(buffer, position)} == {123_456}
    assert buffer.endswith(b"behind")


def test_append_time_can_be_taken_back() -> None:
    buffer, position = _buffer()
    set_append_time(buffer, position, 123_456)
    clear_append_time(buffer, position)
    header = parse_header(buffer, position)
    assert not header.uses_append_time
    assert crc_matches(memoryview(buffer), position, header)
    assert list(iterate_records(buffer, position)) == ROWS
