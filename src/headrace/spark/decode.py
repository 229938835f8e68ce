"""Whole fetch answers to columns: numpy over many batches at once, Python only where it must.

Inside a batch only the records' lengths depend on one another, so those are walked (`walk`); every
other number of every record of the answer is then read by a handful of numpy calls.
Positions come out, not bytes: `columns` makes Arrow arrays of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.client import FetchedChunk
from headrace.core.errors import CorruptBatch, InvalidRecord
from headrace.protocol.compression import decompress
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.encode import ControlType
from headrace.protocol.records.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from headrace.spark.walk import record_ends

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
_VARINT_BYTES_MAX = 10
_CONTROL_KEY_TYPE_AT = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Where a field of every record lies in the data; a negative length is a null."""

    start: Ints
    length: Ints

    def at(self, rows: Any) -> "Span":
        """The same for some of the rows."""
        return Span(self.start[rows], self.length[rows])


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of some chunks in order: numbers as arrays, payloads as places in `data`."""

    data: bytes
    chunk: Ints
    offset: Ints
    timestamp_ms: Ints
    timestamp_type: npt.NDArray[np.int32]
    key: Span
    value: Span
    header_count: Ints
    header_at: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class _Batches:
    """Batches that hold records to be seen: their headers, chunks, and payloads in one buffer."""

    header: npt.NDArray[Any]
    chunk: Ints
    data: bytes
    start: Ints
    end: Ints


def decode(chunks: Sequence[FetchedChunk], bounds: Sequence[tuple[int, int]]) -> Decoded:
    """The records of each chunk whose offsets are within its bounds, the upper one excluded.

    CRCs are checked; control batches are dropped, and those of the chunk's aborted transactions.
    Raises `CorruptBatch` or `InvalidRecord` where bytes are not what they should be.
    """
    batches = _batches(chunks, bounds)
    try:
        return _records(batches, bounds)
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None


# -- batches


def _batches(chunks: Sequence[FetchedChunk], bounds: Sequence[tuple[int, int]]) -> _Batches:
    headers: list[npt.NDArray[Any]] = []
    numbers: list[Ints] = []
    places: list[tuple[memoryview, Ints]] = []
    for number, (chunk, (low, high)) in enumerate(zip(chunks, bounds, strict=True)):
        found, at = _headers(chunk)
        last = found["base_offset"] + found["last_delta"]
        kept = (last >= low) & (found["base_offset"] < high)
        kept &= (found["attributes"] & CONTROL_BIT) == 0
        if chunk.aborted:
            kept &= ~_aborted(chunk, found, at)
        if not kept.all():
            found, at = found[kept], at[kept]
        headers.append(found)
        numbers.append(np.full(len(at), number, np.int64))
        places.append((chunk.data, at))
    header = _joined(headers, _HEADER)
    chunk_numbers = _joined(numbers, np.dtype(np.int64))
    return _with_payloads(header, chunk_numbers, places)


def _joined(parts: list[npt.NDArray[Any]], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, kind)


def _headers(chunk: FetchedChunk) -> tuple[npt.NDArray[Any], Ints]:
    """Headers and positions of a chunk's batches, each checked against its CRC."""
    data, positions, position = chunk.data, [], 0
    end = len(data)
    while position < end:
        positions.append(position)
        size = int.from_bytes(data[position + 8 : position + 12], "big") + LENGTH_OVERHEAD
        position += size
        if size < HEADER_SIZE or position > end:
            raise CorruptBatch(f"{chunk.partition}: a batch of {size} bytes does not fit")
    at = np.array(positions, np.int64)
    raw = np.frombuffer(data, np.uint8)
    header = raw[at[:, None] + np.arange(HEADER_SIZE)].view(_HEADER).reshape(-1)
    if (header["magic"] != MAGIC).any():
        old = int(header["magic"][header["magic"] != MAGIC][0])
        raise CorruptBatch(f"{chunk.partition}: batches of format {old} are not supported")
    ends = [*positions[1:], end] if positions else []
    for start, stop, crc in zip(positions, ends, header["crc"].tolist(), strict=True):
        if crc32c(data[start + ATTRIBUTES_AT : stop]) != crc:
            where = f"{chunk.partition} at offset {int.from_bytes(data[start : start + 8], 'big')}"
            raise CorruptBatch(f"{where}: the checksum does not match the bytes received")
    return header, at


def _aborted(chunk: FetchedChunk, header: npt.NDArray[Any], at: Ints) -> npt.NDArray[np.bool_]:
    """Which batches belong to aborted transactions: from their first offset to the marker."""
    ahead = sorted((first, producer) for producer, first in chunk.aborted)
    hidden = np.zeros(len(header), np.bool_)
    inside: set[int] = set()
    last_offsets = (header["base_offset"] + header["last_delta"]).tolist()
    attributes_and_producers = zip(
        header["attributes"].tolist(), header["producer_id"].tolist(), strict=True
    )
    fields = zip(last_offsets, attributes_and_producers, strict=True)
    for number, (last, (attributes, producer)) in enumerate(fields):
        while ahead and ahead[0][0] <= last:
            inside.add(ahead.pop(0)[1])
        if attributes & CONTROL_BIT:
            if _is_abort(chunk.data, int(at[number])):
                inside.discard(producer)
        elif attributes & TRANSACTIONAL_BIT:
            hidden[number] = producer in inside
    return hidden


def _is_abort(data: memoryview, position: int) -> bool:
    """Markers are one record, never compressed; the type is the second number of its key."""
    at = _behind_varint(data, position + HEADER_SIZE) + 1  # length, attributes
    for _ in ("timestamp", "offset", "key length"):
        at = _behind_varint(data, at)
    at += _CONTROL_KEY_TYPE_AT
    return int.from_bytes(data[at : at + 2], "big") == ControlType.ABORT


def _behind_varint(data: memoryview, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _with_payloads(
    header: npt.NDArray[Any], chunk: Ints, places: list[tuple[memoryview, Ints]]
) -> _Batches:
    """One buffer for all records: the answer itself where it can be, else payloads joined."""
    sizes = header["length"].astype(np.int64) + LENGTH_OVERHEAD
    codecs = header["attributes"] & CODEC_MASK
    if len(places) == 1 and not codecs.any():
        view, at = places[0]
        return _Batches(header, chunk, bytes(view), at + HEADER_SIZE, at + sizes)
    payloads: list[Any] = []
    rest = zip(sizes.tolist(), codecs.tolist(), strict=True)
    for view, at in places:
        for start, (size, codec) in zip(at.tolist(), rest, strict=False):
            payload = view[start + HEADER_SIZE : start + size]
            payloads.append(decompress(codec, payload) if codec else payload)
    ends = np.cumsum(np.array([len(payload) for payload in payloads], np.int64), dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    return _Batches(header, chunk, b"".join(payloads), starts, ends)


# -- records


def _records(batches: _Batches, bounds: Sequence[tuple[int, int]]) -> Decoded:
    header, data = batches.header, batches.data
    counts = header["count"].astype(np.int64)
    end = record_ends(data, batches.start, batches.end, counts)
    batch = np.repeat(np.arange(len(counts)), counts)
    start = np.empty_like(end)
    start[1:] = end[:-1]
    firsts = np.cumsum(counts) - counts
    start[firsts[counts > 0]] = batches.start[counts > 0]
    raw = np.frombuffer(data, np.uint8)

    length, at = varints(raw, start)
    if not np.array_equal(at + length, end):
        raise InvalidRecord("a record has a negative length")
    timestamp, at = varints(raw, at + 1)  # attributes: none are in use
    offset, at = varints(raw, at)
    key_length, key_start = varints(raw, at)
    value_length, value_start = varints(raw, key_start + sizes(key_length, len(data)))
    header_count, at = varints(raw, value_start + sizes(value_length, len(data)))
    _check_ends(header_count, at, end)

    offset += header["base_offset"].astype(np.int64)[batch]
    timestamp += header["base_timestamp"].astype(np.int64)[batch]
    by_append = (header["attributes"] & APPEND_TIME_BIT) != 0
    if by_append.any():
        appended = header["max_timestamp"].astype(np.int64)[batch]
        timestamp = np.where(by_append[batch], appended, timestamp)
    decoded = Decoded(
        data,
        batches.chunk[batch],
        offset,
        timestamp,
        by_append.astype(np.int32)[batch],
        Span(key_start, key_length),
        Span(value_start, value_length),
        header_count,
        at,
        end,
    )
    return _within(decoded, bounds)


def _check_ends(header_count: Ints, at: Ints, end: Ints) -> None:
    if header_count.any():
        # Not looked into unless asked for, but their number must be possible.
        bad = np.where(header_count == 0, at != end, header_count > end - at)
        bad |= header_count < 0
    else:
        bad = at != end
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidRecord(f"a record's parts end at {at[row]}, the record at {end[row]}")


def _within(decoded: Decoded, bounds: Sequence[tuple[int, int]]) -> Decoded:
    """Without what the first and last batches of a chunk hold beyond its bounds."""
    limits = np.array(bounds, np.int64).reshape(-1, 2)[decoded.chunk]
    kept = (decoded.offset >= limits[:, 0]) & (decoded.offset < limits[:, 1])
    return decoded if kept.all() else rows(decoded, kept)


def rows(decoded: Decoded, kept: Any) -> Decoded:
    """Some of the rows, by mask or index."""
    return Decoded(
        decoded.data,
        decoded.chunk[kept],
        decoded.offset[kept],
        decoded.timestamp_ms[kept],
        decoded.timestamp_type[kept],
        decoded.key.at(kept),
        decoded.value.at(kept),
        decoded.header_count[kept],
        decoded.header_at[kept],
        decoded.end[kept],
    )


def sizes(length: Ints, limit: int) -> Ints:
    """Lengths as bytes to step over: none for a null. One that no buffer could hold is refused."""
    if len(length) and int(length.max()) > limit:
        raise InvalidRecord("a field of a record is longer than its batch")
    return np.maximum(length, 0)


def varints(raw: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag varints at these positions, and the positions behind them.

    The first byte of all of them, then further bytes only of those that have one.
    """
    first = raw[at]
    value = first.astype(np.int64)
    behind = at + 1
    open_rows = np.flatnonzero(first > 127)
    if len(open_rows):
        value[open_rows] &= 0x7F
        for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
            byte = raw[behind[open_rows]].astype(np.int64)
            behind[open_rows] += 1
            value[open_rows] |= (byte & 0x7F) << shift
            open_rows = open_rows[byte > 127]
            if not len(open_rows):
                break
        else:
            raise InvalidRecord("a varint has more than ten bytes")
    return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1), behind
