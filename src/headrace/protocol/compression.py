"""Kafka's four codecs, over whole record payloads.

The codec id is the low three bits of a batch's attributes. Snappy comes in two framings: Java
and most others write the xerial stream (a 16-byte header, then length-prefixed blocks),
librdkafka one raw block; both are read, xerial is written. LZ4 is the frame format with
independent blocks, since Java's reader refuses linked ones.

Every decompression is bounded: a few kilobytes can unfold to gigabytes, and they come from
strangers.
"""

from collections.abc import Callable
from enum import IntEnum
from types import ModuleType
from typing import Final

from headrace.core.errors import ApiError, CorruptBatch, ErrorCode
from headrace.core.files import Buffer

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default bound of what one batch may unfold to."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK: Final = 32 * 1024
_FIRST_GUESS: Final = 8
_LATER_GUESS: Final = 4
_SMALLEST_GUESS: Final = 4096


class Codec(IntEnum):
    """The codecs by their id in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, payload: Buffer, level: int | None = None) -> Buffer:
    """`payload` by the codec; `level` is that of the codec, None its default (snappy has none)."""
    if codec == Codec.NONE:
        return payload
    import cramjam  # only where something is compressed: most broker runs never need it

    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(payload, None if level in (None, -1) else level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(cramjam, memoryview(payload))
    if codec == Codec.LZ4:
        lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        lz4.compress(bytes(payload))
        return bytes(lz4.finish())
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(payload, level))
    raise _unknown(codec)


def decompress(codec: int, payload: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What `compress` was given.

    Raises `CorruptBatch` on bytes that are not the codec's, and MESSAGE_TOO_LARGE where more
    than `max_bytes` would come out; no more than that is ever allocated.
    """
    if codec == Codec.NONE:
        return payload
    import cramjam

    if codec == Codec.SNAPPY:
        return _decompress_snappy(cramjam, payload, max_bytes)
    if codec == Codec.GZIP:
        unfold = cramjam.gzip.decompress_into
    elif codec == Codec.LZ4:
        unfold = cramjam.lz4.decompress_into
    elif codec == Codec.ZSTD:
        unfold = cramjam.zstd.decompress_into
    else:
        raise _unknown(codec)
    return _decompress_growing(cramjam, unfold, payload, max_bytes)


def _decompress_growing(
    cramjam: ModuleType, unfold: Callable[[Buffer, bytearray], int], payload: Buffer, max_bytes: int
) -> bytearray:
    """These formats need not say how much comes out: try with larger and larger buffers."""
    room = max(len(payload) * _FIRST_GUESS, _SMALLEST_GUESS)
    while True:
        room = min(room, max_bytes)
        output = bytearray(room)
        try:
            size = unfold(payload, output)
        except cramjam.DecompressionError as error:
            if "failed to write whole buffer" not in str(error):
                raise CorruptBatch(f"cannot decompress the records: {error}") from error
            if room == max_bytes:
                raise _too_large(max_bytes) from None
            room *= _LATER_GUESS
            continue
        del output[size:]
        return output


def _compress_xerial(cramjam: ModuleType, payload: memoryview) -> bytes:
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(cramjam: ModuleType, payload: Buffer, max_bytes: int) -> bytearray:
    view = memoryview(payload)
    blocks = _xerial_blocks(view) if bytes(view[:8]) == _XERIAL_MAGIC else [view]
    output = bytearray()
    try:
        for block in blocks:
            # Snappy says beforehand how much will come out.
            size = cramjam.snappy.decompress_raw_len(block)
            if size > max_bytes - len(output):
                raise _too_large(max_bytes)
            unfolded = bytearray(size)
            cramjam.snappy.decompress_raw_into(block, unfolded)
            output += unfolded
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"cannot decompress the records: {error}") from error
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks of a xerial stream; streams may follow one another, header and all."""
    blocks: list[memoryview] = []
    position = 0
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if position + size > len(view):
            raise CorruptBatch("a snappy block is cut short")
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch may not unfold to more than {max_bytes} bytes"
    )


def _unknown(codec: int) -> CorruptBatch:
    return CorruptBatch(f"unknown compression codec {codec}")
