"""Batches built by us hold what was put in."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidRecord
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import (
    BatchBuilder,
    ControlType,
    encode_batch,
    encode_control_batch,
    recompress,
)
from headrace.protocol.records.header import crc_matches, parse_header


def test_a_builder_numbers_its_records_from_zero() -> None:
    builder = BatchBuilder()
    assert builder.append(b"k", b"v", timestamp=1000) == 0
    assert builder.append(None, None, (("h", b"x"), ("i", None)), timestamp=990) == 1
    batch = builder.build(Codec.GZIP, producer_id=7, producer_epoch=2, base_sequence=40)
    header = parse_header(batch)
    assert (header.base_offset, header.record_count, header.last_offset_delta) == (0, 2, 1)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert crc_matches(memoryview(batch), 0, header)
    assert list(iterate_records(batch)) == [
        Record(0, 1000, b"k", b"v"),
        Record(1, 990, None, None, (("h", b"x"), ("i", None))),
    ]


def test_a_builder_knows_its_size_and_can_be_sealed_again() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v" * 100, timestamp=5)
    assert builder.size == len(builder.build())
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
    again = builder.build(producer_id=1, producer_epoch=1, base_sequence=0)
    assert parse_header(first).producer_epoch + 1 == parse_header(again).producer_epoch
    assert list(iterate_records(first)) == list(iterate_records(again))


def test_offsets_may_have_gaps() -> None:
    rows = [Record(10, 5, b"a", b"1"), Record(14, 6, b"b", None), Record(900, 4, b"c", b"")]
    batch = encode_batch(rows, leader_epoch=2)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 900, 3)
    assert list(iterate_records(batch)) == rows


def test_control_records_carry_version_and_type_in_their_key() -> None:
    batch = encode_control_batch(
        [(ControlType.SNAPSHOT_HEADER, b"abc"), (ControlType.LEADER_CHANGE, b"")],
        base_offset=70,
        leader_epoch=4,
        timestamp=1,
    )
    header = parse_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert [(r.offset, r.key, r.value) for r in iterate_records(batch)] == [
        (70, b"\0\0\0\x03", b"abc"),
        (71, b"\0\0\0\x02", b""),
    ]


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_another_codec_changes_nothing_but_the_codec(source: Codec, target: Codec) -> None:
    rows = [Record(5 + i, 100 + i, b"k%d" % i, b"v" * 50) for i in range(20)]
    batch = encode_batch(
        rows, codec=source, producer_id=3, producer_epoch=1, base_sequence=6, leader_epoch=8
    )
    other = recompress(batch, target)
    header = parse_header(other)
    assert header.codec == target
    assert crc_matches(memoryview(other), 0, header)
    assert list(iterate_records(other)) == rows
    unchanged = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**unchanged) == parse_header(batch)._replace(**unchanged)


def test_a_varint_without_end_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"k" * 20, b"v")]))
    batch[61:72] = b"\xff" * 11
    with pytest.raises(InvalidRecord):
        list(iterate_records(batch))
