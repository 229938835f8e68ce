"""Whole batches of a data file in large reads, and the keys inside one.

`scan_keys` is the innermost loop of compaction: it touches only what it needs of each record,
in line, and jumps over the rest by the record's length.
"""

from collections.abc import Iterator
from typing import Final

from headrace.core.errors import CorruptBatch, HeadraceError
from headrace.core.files import File
from headrace.protocol.records.decode import read_long_varint, record_payload
from headrace.protocol.records.header import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    parse_header,
)

CHUNK_BYTES: Final = 1 << 20
_NULL: Final = 1
"""A length of -1 as a zigzag varint."""


def read_batches(
    file: File, size: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Every batch below `size` as (bytes, position in them, header), whole in those bytes."""
    position = 0
    wanted = chunk_bytes
    while position < size:
        chunk = file.read(position, min(wanted, size - position))
        length, at, wanted = len(chunk), 0, chunk_bytes
        while length - at >= HEADER_SIZE:
            header = parse_header(chunk, at)
            batch_bytes = header.batch_length + LENGTH_OVERHEAD
            if (
                header.magic != MAGIC
                or batch_bytes < HEADER_SIZE
                or position + at + batch_bytes > size
            ):
                raise CorruptBatch(f"no whole batch at position {position + at} of {file.path}")
            if at + batch_bytes > length:
                wanted = max(chunk_bytes, batch_bytes)
                break
            yield chunk, at, header
            at += batch_bytes
        if at == 0 and wanted == chunk_bytes:
            raise CorruptBatch(f"no whole batch at position {position} of {file.path}")
        position += at


def batch_records(chunk: bytes, at: int, header: BatchHeader) -> tuple[bytes, int, int]:
    """The batch's encoded records as (bytes, start, end): where they lie, or decompressed."""
    if header.codec == 0:
        return chunk, at + HEADER_SIZE, at + header.batch_length + LENGTH_OVERHEAD
    payload = record_payload(chunk, header, at)
    return payload, 0, len(payload)


def scan_keys(
    data: bytes, position: int, end: int, count: int
) -> tuple[list[bytes | None], bool] | None:
    """The key of each of `count` records in `data[position:end]`, and whether one is a tombstone.

    None if the records do not fill that range exactly, or one does not hold its own key.
    """
    keys: list[bytes | None] = []
    append = keys.append
    tombstones = False
    try:
        for _ in range(count):
            n = data[position]
            position += 1
            if n > 127:
                more = data[position]
                position += 1
                if more < 128:
                    n = n & 127 | more << 7
                else:
                    n, position = read_long_varint(data, position - 1, n)
            record_end = position + (n >> 1)
            position += 1  # attributes
            while data[position] > 127:  # timestamp delta
                position += 1
            position += 1
            while data[position] > 127:  # offset delta
                position += 1
            position += 1
            n = data[position]
            position += 1
            if n > 127:
                n, position = read_long_varint(data, position, n)
            if n & 1:
                append(None)
            else:
                start = position
                position += n >> 1
                append(data[start:position])
            if data[position] == _NULL:
                tombstones = True
            if position >= record_end:
                return None
            position = record_end
    except (IndexError, HeadraceError):
        return None
    if position != end:
        return None
    return keys, tombstones
