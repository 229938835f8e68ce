"""Small pieces the generated codecs call: varints, tagged-field skipping, UUIDs.

Varints here are Kafka's unsigned ones (seven bits per byte, lowest first). A length or count
on the wire fits 32 bits, so a varint may take five bytes and no more.
"""

from typing import Any, Final
from uuid import UUID

from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer

# Almost every length is short: one lookup instead of a call.
SHORT_VARINTS: Final = tuple(bytes([value]) for value in range(128))

_UUIDS_KEPT: Final = 4096
_uuids: dict[Any, UUID] = {}


def encode_varint(value: int) -> bytes:
    """The unsigned varint of a value of at most 32 bits."""
    if value < 0 or value > 0xFFFFFFFF:
        raise ValueError(f"varint {value} is out of range")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def finish_varint(buffer: Buffer, position: int, low: int) -> tuple[int, int]:
    """Read on after a first byte `low` that announced more; returns value and next position."""
    value = low & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("varint is longer than 32 bits")


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint; returns value and next position."""
    low = buffer[position]
    if low < 128:
        return low, position + 1
    return finish_varint(buffer, position + 1, low)


def skip_tagged_fields(buffer: Buffer, position: int, count: int) -> int:
    """Step over `count` tagged fields that this side does not know."""
    size = len(buffer)
    for _ in range(count):
        _, position = decode_varint(buffer, position)
        length, position = decode_varint(buffer, position)
        position += length
        if position > size:
            raise MalformedMessage("tagged field runs past the end")
    return position


def uuid_from(raw: Any) -> UUID:
    """The UUID of sixteen bytes; ids repeat from request to request, so they are kept."""
    known = _uuids.get(raw)
    if known is None:
        if len(_uuids) >= _UUIDS_KEPT:
            _uuids.clear()
        known = _uuids[raw] = UUID(bytes=raw)
    return known
