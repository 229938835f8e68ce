"""The header of a record batch: 61 bytes, fixed layout, in front of every batch on wire and disk.

offset  bytes  field
     0      8  base offset            patched by the broker, outside the CRC
     8      4  batch length           what follows this field
    12      4  partition leader epoch patched by the broker, outside the CRC
    16      1  magic                  2
    17      4  CRC-32C                of everything from the attributes on
    21      2  attributes             bits 0-2 codec, 3 append time, 4 transactional,
                                      5 control, 6 delete horizon (KIP-534)
    23      4  last offset delta
    27      8  base timestamp         or the delete horizon, if bit 6 is set
    35      8  max timestamp
    43      8  producer id
    51      2  producer epoch
    53      4  base sequence
    57      4  record count
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from headrace.core.errors import CorruptBatch
from headrace.core.files import Buffer
from headrace.protocol.records.checksum import crc32c

HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Base offset and batch length: the bytes that `batch_length` does not count."""
MAGIC: Final = 2

LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1

HEADER: Final = Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """The header's fields in wire order, so that a batch costs one `unpack` and one tuple."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def uses_append_time(self) -> bool:
        """Every record's timestamp is `max_timestamp`, set by the broker."""
        return self.attributes & APPEND_TIME_BIT != 0

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers in this batch may go (KIP-534); None while not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked; fewer than 61 bytes there raise `CorruptBatch`."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch(
            f"a batch header needs {HEADER_SIZE} bytes, {len(buffer) - position} are left"
        )
    # tuple.__new__ skips the keyword handling of the named tuple's own constructor.
    return _new_tuple(BatchHeader, _unpack_header(buffer, position))


def iterate_headers(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch in `buffer[position:end]` as (position, header), CRC unchecked.

    Raises `CorruptBatch` at the first batch whose length or magic is impossible or that does
    not fit; what was yielded before it is whole.
    """
    limit = len(buffer) if end is None else end
    while position < limit:
        if limit - position < HEADER_SIZE:
            raise CorruptBatch(f"{limit - position} stray bytes at position {position}")
        header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
        size = header.batch_length + LENGTH_OVERHEAD
        if header.magic != MAGIC:
            raise CorruptBatch(f"magic {header.magic} at position {position}")
        if size < HEADER_SIZE:
            raise CorruptBatch(f"batch length {header.batch_length} at position {position}")
        if size > limit - position:
            raise CorruptBatch(
                f"the batch at position {position} has {size} bytes, {limit - position} are left"
            )
        yield position, header
        position += size


def crc_matches(buffer: memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the stored CRC is that of the bytes from the attributes to the batch's end."""
    end = position + header.batch_length + LENGTH_OVERHEAD
    return crc32c(buffer[position + ATTRIBUTES_AT : end]) == header.crc
