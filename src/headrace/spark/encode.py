"""Arrow columns as record batches, a whole column at a time.

A record is its payload with a few small numbers around it. The numbers of all records are laid
out by numpy, then Arrow joins them with keys, values and headers in one pass of memcpy; what
comes out lies in one buffer, of which each batch is a slice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.protocol.compression import compress
from headrace.protocol.records.encode import pack_batch

Ints = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]

# No record has more than this around its payload: seven varints and one byte of attributes.
_AROUND_MAX = 40
_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class Rows:
    """Records as columns: `key` and `headers` may be missing altogether."""

    value: pa.Array
    key: pa.Array | None
    headers: pa.Array | None
    timestamp_ms: Ints

    def __len__(self) -> int:
        return len(self.value)

    def take(self, order: Ints) -> "Rows":
        """The same rows in another order, or some of them."""
        indices = pa.array(order)
        return Rows(
            self.value.take(indices),
            None if self.key is None else self.key.take(indices),
            None if self.headers is None else self.headers.take(indices),
            self.timestamp_ms[order],
        )


class EncodedBatch(NamedTuple):
    """A sealed batch, and the target that its rows have in common."""

    target: int
    data: bytearray


def encode(rows: Rows, target: Ints, *, bytes_max: int, codec: int = 0) -> Iterator[EncodedBatch]:
    """Batches of at most `bytes_max` before compression, each of rows with the same target.

    Rows of a target keep their order. A row larger than `bytes_max` has a batch to itself.
    """
    if not len(rows):
        return
    if (target[1:] < target[:-1]).any():
        order = np.argsort(target, kind="stable")
        rows, target = rows.take(order), target[order]
    payload = _Payload(rows)
    starts = _cut(payload.sizes_max, target, bytes_max)
    counts = np.diff(starts, append=len(rows))
    base_ms = rows.timestamp_ms[starts]
    joined = payload.joined(
        rows.timestamp_ms - np.repeat(base_ms, counts),
        np.arange(len(rows)) - np.repeat(starts, counts),
    )
    offsets, data = _parts(joined)
    latest_ms = np.maximum.reduceat(rows.timestamp_ms, starts)
    for index, start in enumerate(starts.tolist()):
        count = int(counts[index])
        records = data[offsets[start] : offsets[start + count]]
        sealed = pack_batch(
            compress(codec, records),
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=int(base_ms[index]),
            max_timestamp=int(latest_ms[index]),
            record_count=count,
        )
        yield EncodedBatch(int(target[start]), sealed)


class _Payload:
    """Keys, values and headers with their lengths, ready to be joined with the numbers."""

    def __init__(self, rows: Rows) -> None:
        self._count = len(rows)
        self._key, self._value = rows.key, rows.value
        self._key_size = np.full(self._count, -1) if rows.key is None else _sizes(rows.key)
        self._value_size = _sizes(rows.value)
        self._headers, self._header_count = _headers(rows.headers, self._count)
        header_size = 0 if self._headers is None else _sizes(self._headers)
        self._size = (
            np.maximum(self._key_size, 0) + np.maximum(self._value_size, 0) + header_size
        ).astype(np.int64)

    @property
    def sizes_max(self) -> Ints:
        """Bytes that each record takes at most."""
        return self._size + _AROUND_MAX

    def joined(self, timestamp_delta: Ints, offset_delta: Ints) -> pa.Array:
        """Every record as bytes, its own length first."""
        before_key = [timestamp_delta, offset_delta, self._key_size]
        numbers = [*before_key, self._value_size, self._header_count]
        around = sum((_widths(_zigzag(each)) for each in numbers), np.int64(1))
        length = self._size + around
        attributes = np.zeros(self._count, np.int64)
        parts = [_varints([length, attributes, *before_key])]
        if self._key is not None:
            parts.append(self._key)
        parts += [_varints([self._value_size]), self._value, _varints([self._header_count])]
        if self._headers is not None:
            parts.append(self._headers)
        return _join(parts)


def _headers(headers: pa.Array | None, count: int) -> tuple[pa.Array | None, Ints]:
    """The bytes of each row's headers, and how many there are; null lists count as empty."""
    none = np.zeros(count, np.int64)
    if headers is None:
        return None, none
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(headers)
    if not len(flat):
        return None, none
    name = as_binary(pc.struct_field(flat, [0]))
    value = as_binary(pc.struct_field(flat, [1]))
    # A header without a name is not a thing of the format: it travels with an empty one.
    name_size = np.maximum(_sizes(name), 0)
    each = _join([_varints([name_size]), name, _varints([_sizes(value)]), value])
    ends, data = _parts(each)
    last = np.concatenate(([0], np.cumsum(counts)))
    row_ends = np.ascontiguousarray(ends[last], np.int32)
    buffers = [None, pa.py_buffer(row_ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers), counts.astype(np.int64)


def as_binary(column: pa.Array) -> pa.Array:
    """Strings as their bytes; wide offsets as plain ones."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_string(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _join(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement="")


def _sizes(column: pa.Array) -> Ints:
    """Bytes of each row, -1 for null."""
    found: Any = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
    return np.asarray(found, np.int64)


def _parts(column: pa.Array) -> tuple[Offsets, memoryview]:
    """Where each row of a binary column begins (and the last ends), and the bytes."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    return places, memoryview(b"" if data is None else data)


def _cut(sizes: Ints, target: Ints, bytes_max: int) -> Ints:
    """Where batches begin: at a new target, and before `bytes_max` would be passed."""
    before = np.concatenate(([0], np.cumsum(sizes)))
    borders = np.flatnonzero(np.diff(target)) + 1
    starts: list[int] = []
    begin = 0
    for end in [*borders.tolist(), len(target)]:
        while begin < end:
            starts.append(begin)
            fit = int(np.searchsorted(before, before[begin] + bytes_max, "right")) - 1
            begin = min(max(fit, begin + 1), end)
    return np.array(starts, np.int64)


def _zigzag(numbers: Ints) -> Ints:
    zigzag: Ints = (numbers << 1) ^ (numbers >> 63)
    return zigzag


def _widths(zigzag: Ints) -> Ints:
    """Bytes that each number takes as a varint."""
    widths = np.ones(len(zigzag), np.int64)
    highest = int(zigzag.max()) if len(zigzag) else 0
    limit = 1 << 7
    while limit <= highest:
        widths += zigzag >= limit
        limit <<= 7
    return widths


def _varints(columns: Sequence[Ints]) -> pa.Array:
    """The numbers of each row as varints, one after the other, as a binary column."""
    count = len(columns[0])
    zigzag = [_zigzag(each) for each in columns]
    widths = [_widths(each) for each in zigzag]
    ends = np.cumsum(sum(widths[1:], widths[0]))
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends
    out = np.zeros(int(ends[-1]) if count else 0, np.uint8)
    at = offsets[:-1].astype(np.int64)
    for number, width in zip(zigzag, widths, strict=True):
        _scatter(out, at, number, int(width.max()) if count else 0)
        at = at + width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _scatter(out: npt.NDArray[np.uint8], at: Ints, number: Ints, rounds: int) -> None:
    """Write one varint for each row: all first bytes, then the second where there is one..."""
    if rounds == 1:
        out[at] = number
        return
    for _ in range(rounds):
        more = number >= 0x80
        out[at] = (number & 0x7F) | np.where(more, 0x80, 0)
        if not more.all():
            at, number = at[more], number[more]
        at, number = at + 1, number >> 7
