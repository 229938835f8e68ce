"""Record batches made by hand, right or wrong in any one place, independent of our own codec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import crc32c

FIXED_TIMESTAMP_MS = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


def varint(value: int) -> bytes:
    """Zigzag variable-length encoding."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag & ~0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def record(
    offset_delta: int, key: bytes | None, value: bytes | None, timestamp_delta: int = 0
) -> bytes:
    """One record without headers, its length first."""

    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(0)
    return varint(len(body)) + body


@dataclass(frozen=True, slots=True)
class Batch:
    """A version 2 batch; every field may be set wrong on purpose."""

    values: Sequence[tuple[bytes | None, bytes | None]] = field(
        default_factory=lambda: [(b"key", b"value")]
    )
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp_ms: int = FIXED_TIMESTAMP_MS
    max_timestamp_ms: int | None = None
    timestamp_step_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int | None = None
    crc: int | None = None
    length: int | None = None
    records: bytes | None = None

    def but(self, **changes: Any) -> Batch:
        """The same batch with some fields changed."""
        return replace(self, **changes)

    def encode(self) -> bytes:
        """The batch as bytes, with whatever was not set worked out."""
        count = len(self.values)
        step = self.timestamp_step_ms
        payload = self.records
        if payload is None:
            payload = b"".join(
                record(delta, key, value, delta * step)
                for delta, (key, value) in enumerate(self.values)
            )
        last = self.last_offset_delta if self.last_offset_delta is not None else count - 1
        newest = self.max_timestamp_ms
        if newest is None:
            newest = self.base_timestamp_ms + step * (count - 1)
        counted = self.record_count if self.record_count is not None else count
        checked = struct.pack(
            ">hiqqqhii",
            self.attributes,
            last,
            self.base_timestamp_ms,
            newest,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            counted,
        )
        checked += payload
        crc = self.crc if self.crc is not None else crc32c.crc32c(checked)
        tail = struct.pack(">ibI", self.leader_epoch, self.magic, crc) + checked
        length = self.length if self.length is not None else len(tail)
        return struct.pack(">qi", self.base_offset, length) + tail


def values(count: int, prefix: str = "v") -> list[tuple[bytes | None, bytes | None]]:
    """`count` keyed pairs that tell themselves apart."""
    return [(f"k{number}".encode(), f"{prefix}{number}".encode()) for number in range(count)]
