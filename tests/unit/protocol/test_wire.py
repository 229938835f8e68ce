"""Varints and ids, at their edges."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from headrace.core.errors import MalformedMessage
from headrace.protocol.wire import (
    SHORT_VARINTS,
    decode_varint,
    encode_varint,
    skip_tagged_fields,
    uuid_from,
)

EDGES = {
    0: "00",
    1: "01",
    127: "7f",
    128: "8001",
    300: "ac02",
    16383: "ff7f",
    16384: "808001",
    (1 << 31) - 1: "ffffffff07",
    (1 << 32) - 1: "ffffffff0f",
}


@pytest.mark.parametrize(("value", "encoded"), EDGES.items())
def test_varints_have_seven_bits_per_byte_lowest_first(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varint(b"??" + data + b"!", 2) == (value, 2 + len(data))


def test_the_table_of_short_varints_agrees_with_the_long_way() -> None:
    assert list(SHORT_VARINTS) == [encode_varint(value) for value in range(128)]


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_varint_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        encode_varint(value)


@pytest.mark.parametrize("encoded", ["ffffffff1f", "ffffffffff01", "808080808080"])
def test_a_varint_beyond_32_bits_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_varint(bytes.fromhex(encoded), 0)


def test_a_skipped_tag_may_not_run_past_the_end() -> None:
    assert skip_tagged_fields(bytes.fromhex("00 02 aaaa ff"), 0, 1) == 4
    with pytest.raises(MalformedMessage):
        skip_tagged_fields(bytes.fromhex("00 05 aaaa"), 0, 1)


def test_the_same_bytes_give_the_same_uuid_object_until_the_store_is_full() -> None:
    first = uuid4()
    kept = uuid_from(first.bytes)
    assert kept == first
    assert uuid_from(first.bytes) is kept
    for number in range(5000):
        uuid_from(UUID(int=number).bytes)
    assert uuid_from(first.bytes) == first
