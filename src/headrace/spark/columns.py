"""Arrow arrays from decoded positions: payloads are copied once, by Arrow's own code."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import InvalidRecord
from headrace.spark.decode import Decoded, Ints, Span, sizes, varints

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

# What the offsets of Arrow's arrays can reach, and the times that microseconds can tell.
BINARY_BYTES_MAX: Final = 2**31 - 1
_TIME_MS_MAX: Final = (2**63 - 1) // 1000


def binary(data: bytes, span: Span) -> pa.Array:
    """The bytes of a field of every record; null where the length is negative."""
    count = len(span.start)
    if not count:
        return pa.array([], pa.binary())
    # An array over the data that has our fields at even places and what lies between at odd
    # ones; taking the even ones is one pass of memcpy.
    null = span.length < 0
    some_null = bool(null.any())
    end = span.start + (np.maximum(span.length, 0) if some_null else span.length)
    low, buffer = 0, pa.py_buffer(data)
    if len(data) > BINARY_BYTES_MAX:
        low, high = int(span.start.min()), int(end.max())
        if high - low > BINARY_BYTES_MAX:
            raise InvalidRecord(f"records of {high - low} bytes are too many for one column")
        buffer = buffer.slice(low, high - low)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = span.start - low if low else span.start
    offsets[1::2] = end - low if low else end
    buffers = [None, pa.py_buffer(offsets), buffer]
    woven = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    even = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    return woven.take(pa.array(even, mask=null if some_null else None))


def names(topics: Sequence[str], chunk: Ints) -> pa.Array:
    """The topic of every record, by the number of its chunk."""
    if len(topics) == 1:
        return pa.repeat(pa.scalar(topics[0], pa.string()), len(chunk))
    return pa.array(topics, pa.string()).take(pa.array(chunk))


def timestamps(timestamp_ms: Ints) -> pa.Array:
    """Milliseconds as Spark's microseconds; a time that those cannot tell is refused."""
    beyond = (timestamp_ms > _TIME_MS_MAX) | (timestamp_ms < -_TIME_MS_MAX)
    if beyond.any():
        raise InvalidRecord(
            f"a record's time is {timestamp_ms[beyond][0]} ms since 1970, too far off for a "
            "timestamp: list the other columns in the option 'columns' to read without it"
        )
    return pa.array(timestamp_ms * 1000).view(pa.timestamp("us", tz="UTC"))


def moment(time_ms: int | None, count: int) -> pa.Array:
    """One time for every record, or none."""
    kind = pa.timestamp("us", tz="UTC")
    return pa.repeat(pa.scalar(None if time_ms is None else time_ms * 1000, kind), count)


def headers(decoded: Decoded) -> pa.Array:
    """The headers of every record as a list, empty where there are none.

    Never null: a column of nothing but null lists takes Spark's way back to Arrow quadratic time.
    """
    counts = decoded.header_count
    last = np.cumsum(counts)
    total = int(last[-1]) if len(last) else 0
    first = last - counts
    key = Span(np.zeros(total, np.int64), np.zeros(total, np.int64))
    value = Span(np.zeros(total, np.int64), np.zeros(total, np.int64))
    raw = np.frombuffer(decoded.data, np.uint8)
    left = np.flatnonzero(counts > 0)
    at = decoded.header_at[left]
    rank = 0
    try:
        while len(left):  # the first header of all records, then the second of those with two, ...
            slot = first[left] + rank
            length, at = varints(raw, at)
            if (length < 0).any():
                raise InvalidRecord("a record header has no key")
            key.start[slot], key.length[slot] = at, length
            length, at = varints(raw, at + sizes(length, len(raw)))
            value.start[slot], value.length[slot] = at, length
            at = at + sizes(length, len(raw))
            rank += 1
            more = counts[left] > rank
            if (at[~more] != decoded.end[left[~more]]).any():
                raise InvalidRecord("the headers of a record do not end where it ends")
            left, at = left[more], at[more]
    except IndexError:
        raise InvalidRecord("a record header reaches past its record") from None
    pairs = pa.StructArray.from_arrays(
        [_text(binary(decoded.data, key)), binary(decoded.data, value)],
        fields=list(HEADERS_TYPE.value_type),
    )
    edges = np.zeros(len(counts) + 1, np.int32)
    edges[1:] = last
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=HEADERS_TYPE)


def _text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: what cannot be read is shown as such, as Java does
        return pa.array([each.decode("utf-8", "replace") for each in values.to_pylist()])
