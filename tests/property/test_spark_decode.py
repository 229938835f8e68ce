"""Spark's decoder against the plain one, for every content hypothesis can think of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import FetchedChunk, TopicPartition
from headrace.client.core.fetched import decode_chunk
from headrace.core.errors import HeadraceError
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import (
    ControlType,
    encode_batch,
    encode_control_batch,
)
from headrace.protocol.records.patch import refresh_crc
from headrace.spark import columns
from headrace.spark.decode import Decoded, decode

payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), payloads), max_size=3).map(tuple)
times = st.integers(0, 2**50) | st.integers(1_700_000_000_000, 1_700_000_100_000)
codecs = st.sampled_from(list(Codec))
PARTITION = TopicPartition("t", 0)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Batches in offset order with gaps, as compaction and transactions leave them."""
    offset = draw(st.integers(0, 2**40))
    made: list[bytes] = []
    for _ in range(draw(st.integers(1, 6))):
        producer = draw(st.integers(1, 3))
        kind = draw(st.sampled_from(["plain", "plain", "transactional", "commit", "abort"]))
        if kind in ("commit", "abort"):
            marker = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
            made.append(bytes(control_batch(offset, producer, marker)))
            offset += 1
        else:
            rows = []
            for _ in range(draw(st.integers(1, 12))):
                row = Record(offset, draw(times), draw(payloads), draw(payloads), draw(headers))
                rows.append(row)
                offset += draw(st.integers(1, 300))
            append_time = draw(st.booleans())
            made.append(batch(rows, draw(codecs), kind, producer, append_time))
        offset += draw(st.integers(0, 3))
    return made


def control_batch(offset: int, producer: int, marker: ControlType) -> bytearray:
    return encode_control_batch(
        [(marker, b"\0\0\0\0\0\0")],
        base_offset=offset,
        leader_epoch=0,
        timestamp=5,
        producer_id=producer,
        transactional=True,
    )


def batch(rows: list[Record], codec: Codec, kind: str, producer: int, append_time: bool) -> bytes:
    return bytes(
        encode_batch(
            rows,
            codec=codec,
            append_time=append_time,
            producer_id=producer if kind == "transactional" else -1,
            transactional=kind == "transactional",
        )
    )


def chunk(data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> FetchedChunk:
    return FetchedChunk(PARTITION, 0, memoryview(data), 2**62, 2**62, 0, aborted)


def as_records(decoded: Decoded) -> list[Record]:
    keys = columns.binary(decoded.data, decoded.key).to_pylist()
    values = columns.binary(decoded.data, decoded.value).to_pylist()
    listed: list[Any] = columns.headers(decoded).to_pylist()
    pairs = [tuple((each["key"], each["value"]) for each in row) for row in listed]
    numbers = zip(decoded.offset.tolist(), decoded.timestamp_ms.tolist(), strict=True)
    return [
        Record(offset, timestamp, key, value, found)
        for (offset, timestamp), key, value, found in zip(numbers, keys, values, pairs, strict=True)
    ]


def plainly(piece: FetchedChunk, low: int, high: int) -> list[Record]:
    """What the client's own decoder makes of a chunk."""
    found = decode_chunk(piece, low, check_crc=True)
    return [row for _, each in found for row in each if row.offset < high]


@given(batches(), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2**41)), max_size=3))
def test_both_decoders_see_the_same_records(
    made: list[bytes], aborted: list[tuple[int, int]]
) -> None:
    piece = chunk(b"".join(made), aborted)
    assert as_records(decode([piece], [(0, 2**62)])) == plainly(piece, 0, 2**62)


@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_several_chunks_are_decoded_at_once_each_within_its_bounds(
    made: list[list[bytes]], data: st.DataObject
) -> None:
    chunks = [chunk(b"".join(each)) for each in made]
    bounds = []
    for piece in chunks:
        offsets = [row.offset for row in plainly(piece, 0, 2**62)] or [0]
        low = data.draw(st.sampled_from(offsets))
        bounds.append((low, low + data.draw(st.integers(0, 2000))))
    decoded = decode(chunks, bounds)
    expected = [plainly(piece, *bound) for piece, bound in zip(chunks, bounds, strict=True)]
    assert as_records(decoded) == [row for each in expected for row in each]
    numbers = [number for number, each in enumerate(expected) for _ in each]
    assert decoded.chunk.tolist() == numbers


@given(batches(), st.data())
def test_damage_is_refused_by_its_checksum(made: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(made))
    at = data.draw(st.integers(21, len(made[0]) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(HeadraceError, match="checksum"):
        decode([chunk(bytes(whole))], [(0, 2**62)])


@given(batches(), st.data())
def test_damage_behind_a_good_checksum_gives_the_same_records_or_a_clean_error(
    made: list[bytes], data: st.DataObject
) -> None:
    first = bytearray(made[0])
    for _ in range(data.draw(st.integers(1, 4))):
        first[data.draw(st.integers(21, len(first) - 1))] = data.draw(st.integers(0, 255))
    refresh_crc(first, 0)
    piece = chunk(bytes(first) + b"".join(made[1:]))
    try:
        expected = plainly(piece, 0, 2**62)
    except HeadraceError:
        with pytest.raises(HeadraceError):
            as_records(decode([piece], [(0, 2**62)]))
        return
    try:
        found = as_records(decode([piece], [(0, 2**62)]))
    except HeadraceError:
        # Numbers that no broker makes (a delta of 70 bits) may be refused by one decoder only.
        return
    assert [row._replace(offset=0, timestamp=0) for row in found] == [
        row._replace(offset=0, timestamp=0) for row in expected if 0 <= row.offset < 2**62
    ]
