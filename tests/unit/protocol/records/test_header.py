"""Reading batch headers, whole, cut and altered."""

from __future__ import annotations

import pytest

from headrace.core.errors import CorruptBatch
from headrace.protocol.compression import Codec
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import (
    HEADER_SIZE,
    crc_matches,
    iterate_headers,
    parse_header,
)


def _batch(base_offset: int = 0, count: int = 2, codec: Codec = Codec.NONE) -> bytes:
    rows = [Record(base_offset + i, 1000 + i, b"k", b"v") for i in range(count)]
    return bytes(
        encode_batch(
            rows,
            codec=codec,
            leader_epoch=3,
            producer_id=9,
            producer_epoch=1,
            base_sequence=2**31 - 1,
        )
    )


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_every_field_is_read() -> None:
    batch = _batch(base_offset=40, count=3, codec=Codec.LZ4)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 42, 3)
    assert (header.size, header.magic, header.leader_epoch) == (len(batch), 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch) == (9, 1)
    assert header.codec == Codec.LZ4
    assert header.attributes == Codec.LZ4
    assert header.delete_horizon is None


def test_sequences_wrap_to_zero() -> None:
    assert parse_header(_batch(count=3)).last_sequence == 1


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = encode_batch([Record(0, 1000, b"k", None)], delete_horizon=777)
    assert parse_header(batch).delete_horizon == 777


def test_headers_are_walked_to_the_end() -> None:
    buffer = _batch(0, 2) + _batch(2, 5) + _batch(9, 1)
    found = [(position, header.base_offset) for position, header in iterate_headers(buffer)]
    assert [base for _, base in found] == [0, 2, 9]
    assert found[0][0] == 0
    [(_, middle)] = iterate_headers(buffer, found[1][0], found[2][0])
    assert middle.base_offset == 2


@pytest.mark.parametrize("cut", [1, HEADER_SIZE - 1, HEADER_SIZE + 1])
def test_a_cut_batch_stops_the_walk_behind_the_last_whole_one(cut: int) -> None:
    buffer = _batch(0, 2) + _batch(2, 5)[:cut]
    walk = iterate_headers(buffer)
    assert next(walk)[1].base_offset == 0
    with pytest.raises(CorruptBatch):
        next(walk)


@pytest.mark.parametrize(("position", "value"), [(16, 1), (16, 255), (8, 255), (11, 3), (8, 1)])
def test_an_impossible_length_or_magic_is_corrupt(position: int, value: int) -> None:
    buffer = bytearray(_batch())
    buffer[position] = value
    with pytest.raises(CorruptBatch):
        list(iterate_headers(buffer))


def test_too_few_bytes_for_a_header_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        parse_header(_batch()[: HEADER_SIZE - 1])


def test_the_crc_covers_everything_from_the_attributes_on() -> None:
    batch = bytearray(_batch())
    view = memoryview(batch)
    for position in range(len(batch)):
        batch[position] ^= 0x10
        header = parse_header(bytes(batch))._replace(batch_length=len(batch) - 12)
        assert crc_matches(view, 0, header) == (position < 17)
        batch[position] ^= 0x10
