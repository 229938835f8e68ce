"""Walk the batches of a data file by their headers, reading little of what lies between."""

from collections.abc import Iterator
from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.files import File
from headrace.protocol.records.header import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    parse_header,
)

# Large enough for the bytes between two index entries, small enough to waste when batches
# are large and only their headers are wanted.
CHUNK_BYTES: Final = 16 * 1024


def scan_headers(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch in `[position, end)` as (position, header); bodies and CRCs are not looked at.

    Raises `CorruptBatch` where no batch can begin or the last one reaches past `end`.
    """
    chunk = b""
    chunk_start = position
    while position < end:
        within = position - chunk_start
        if within + HEADER_SIZE > len(chunk):
            chunk = file.read(position, min(chunk_bytes, end - position))
            chunk_start, within = position, 0
        header = parse_header(chunk, within)
        size = header.batch_length + LENGTH_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            raise CorruptBatch(f"no whole batch at position {position} of {file.path}")
        yield position, header
        position += size
