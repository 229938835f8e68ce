"""The records inside a batch.

    record: length, attributes (int8), timestamp delta, offset delta, key length, key,
            value length, value, header count, (key length, key, value length, value)*

All numbers but the attributes are zigzag varints; a negative length means null. The loops
below read varints in line, one and two bytes first, because a call per number would double
the time per record.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.errors import ApiError, CorruptBatch, InvalidRecord
from headrace.core.files import Buffer
from headrace.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress
from headrace.protocol.records.budget import Budget, OverBudget
from headrace.protocol.records.header import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    parse_header,
)

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


_new_tuple = tuple.__new__


def record_payload(
    buffer: Buffer,
    header: BatchHeader,
    position: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    *,
    budget: Budget | None = None,
) -> bytes:
    """The records of the batch at `position`, decompressed, still encoded.

    Raises `OverBudget` if they are more than the budget has left.
    """
    end = position + header.batch_length + LENGTH_OVERHEAD
    if header.batch_length + LENGTH_OVERHEAD < HEADER_SIZE or end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size} bytes at {position} does not fit its buffer")
    payload = memoryview(buffer)[position + HEADER_SIZE : end]
    if budget is not None:
        # Every codec but snappy may keep quiet about what comes out, so no more is let out
        # than may be looked at; compressed bytes count as well, unfolding them takes time.
        budget.spend(len(payload))
        if header.codec and budget.left < max_bytes:
            if not budget.left:
                raise OverBudget
            try:
                unfolded = bytes(decompress(header.codec, payload, budget.left))
            except ApiError as error:
                raise OverBudget from error
            budget.spend(len(unfolded))
            return unfolded
    return bytes(decompress(header.codec, payload, max_bytes))


def iterate_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the batch at `position`, in order.

    The CRC is not checked here. Raises `CorruptBatch` if the payload cannot be decompressed
    and `InvalidRecord` at the first record that is not well formed, or if their number or
    length is not what the header says.
    """
    if header is None:
        header = parse_header(buffer, position)
    return decode_payload(record_payload(buffer, header, position, max_bytes), header)


def decode_payload(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of an already decompressed payload; see `iterate_records`."""
    try:
        yield from _records(payload, header)
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None


def _records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.uses_append_time else None
    position = 0
    end = len(data)
    for _ in range(header.record_count):
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        record_end = position + ((n >> 1) ^ -(n & 1))
        if record_end > end:
            raise InvalidRecord(f"a record reaches {record_end - end} bytes past its batch")
        position += 1  # attributes: none are in use
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        offset = base_offset + ((n >> 1) ^ -(n & 1))
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        key: bytes | None = None
        if not n & 1:
            start, position = position, position + (n >> 1)
            key = data[start:position]
        n = data[position]
        position += 1
        if n > 127:
            more = data[position]
            if more < 128:
                n += (more << 7) - 128
                position += 1
            else:
                n, position = read_long_varint(data, position, n)
        value: bytes | None = None
        if not n & 1:
            start, position = position, position + (n >> 1)
            value = data[start:position]
        n = data[position]
        position += 1
        headers: tuple[Header, ...] = ()
        if n:
            headers, position = _read_headers(data, position - 1, record_end)
        if position != record_end:
            raise InvalidRecord(f"a record's parts end at {position}, the record at {record_end}")
        if append_time is not None:
            timestamp = append_time
        yield _new_tuple(Record, (offset, timestamp, key, value, headers))
    if position != end:
        raise InvalidRecord(f"{end - position} bytes are left behind the last record")


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise InvalidRecord(f"a record claims {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise InvalidRecord("a record header has no key")
        key = data[position : position + size]
        position += size
        size, position = read_varint(data, position)
        value: bytes | None = None
        if size >= 0:
            value = data[position : position + size]
            position += size
        if position > end:
            raise InvalidRecord("a record header reaches past its record")
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The zigzag varint at `position` and the position behind it."""
    n = data[position]
    position += 1
    if n > 127:
        n, position = read_long_varint(data, position, n)
    return (n >> 1) ^ -(n & 1), position


def read_long_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose first byte said there is more; not yet zigzag-decoded."""
    n = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n, position
        shift += 7
        if shift > 63:
            raise InvalidRecord("a varint has more than ten bytes")
