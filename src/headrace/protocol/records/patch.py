"""What a broker writes into a batch it has accepted, in place, in a writable buffer."""

from struct import Struct

from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CRC_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP_AT,
)

_pack_int64 = Struct(">q").pack_into
_pack_int32 = Struct(">i").pack_into
_pack_uint32 = Struct(">I").pack_into
_pack_int16 = Struct(">h").pack_into
_unpack_int16 = Struct(">h").unpack_from
_unpack_int32 = Struct(">i").unpack_from


def assign_offsets(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch; both lie before the CRC's range, so it stays valid."""
    _pack_int64(buffer, position, base_offset)
    _pack_int32(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def set_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Give every record of the batch the broker's time (`message.timestamp.type=LogAppendTime`)."""
    (attributes,) = _unpack_int16(buffer, position + ATTRIBUTES_AT)
    _pack_int16(buffer, position + ATTRIBUTES_AT, attributes | APPEND_TIME_BIT)
    _pack_int64(buffer, position + MAX_TIMESTAMP_AT, timestamp_ms)
    refresh_crc(buffer, position)


def clear_append_time(buffer: bytearray | memoryview, position: int) -> None:
    """Take back an append-time bit that a producer set and that is not its to set."""
    (attributes,) = _unpack_int16(buffer, position + ATTRIBUTES_AT)
    _pack_int16(buffer, position + ATTRIBUTES_AT, attributes & ~APPEND_TIME_BIT)
    refresh_crc(buffer, position)


def refresh_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the batch's CRC anew after a change behind the CRC field."""
    (batch_length,) = _unpack_int32(buffer, position + 8)
    end = position + batch_length + LENGTH_OVERHEAD
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
    _pack_uint32(buffer, position + CRC_AT, crc)
