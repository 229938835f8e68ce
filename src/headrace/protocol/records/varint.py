"""Zigzag varints as records use them: small numbers of either sign in few bytes."""

from typing import Final

_TABLE_SIZE: Final = 2048


def _encode(number: int) -> bytes:
    n = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while n > 127:
        encoded.append((n & 0x7F) | 0x80)
        n >>= 7
    encoded.append(n)
    return bytes(encoded)


SMALL_VARINTS: Final = tuple(_encode(number) for number in range(_TABLE_SIZE))
"""Most lengths and deltas are small: index this before calling."""


def encode_varint(number: int) -> bytes:
    """The number (64 bits, signed) as a zigzag varint."""
    if 0 <= number < _TABLE_SIZE:
        return SMALL_VARINTS[number]
    return _encode(number)
