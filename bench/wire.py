"""The few raw requests a benchmark needs where a full client would blur the figure.

Old, non-flexible versions, packed by hand and independent of Headrace's own codec: Metadata v4
(which creates the topic), Produce v7 with one record batch for each partition, and Fetch v4.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

import crc32c

_CLIENT = b"bench"
_METADATA, _PRODUCE, _FETCH = 3, 0, 1
_RETRY_SECONDS = 0.001


def request(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A framed request with header v1."""
    head = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT)) + _CLIENT
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    """A string with its length."""
    return struct.pack(">h", len(value)) + value.encode()


def record_batch(value: bytes, count: int = 1) -> bytes:
    """A batch of `count` equal records without key."""
    now_ms = time.time_ns() // 1_000_000
    records = b"".join(_record(delta, value) for delta in range(count))
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    crc = crc32c.crc32c(checked)
    tail = struct.pack(">ibI", -1, 2, crc) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(offset_delta) + b"\x01" + _varint(len(value)) + value + b"\x00"
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Zigzag varint of a non-negative number."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def produce_request(topic: str, partition: int, acks: int, batch: bytes) -> bytes:
    """Produce v7 for one partition."""
    return produce_many_request(topic, (partition,), acks, batch)


def produce_many_request(topic: str, partitions: Sequence[int], acks: int, batch: bytes) -> bytes:
    """Produce v7, the same batch for each of the partitions."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic)
    body += struct.pack(">i", len(partitions))
    each = b"".join(struct.pack(">ii", number, len(batch)) + batch for number in partitions)
    return request(_PRODUCE, 7, body + each)


def fetch_request(topic: str, partitions: Sequence[int], size: int) -> bytes:
    """Fetch v4 from the start of the partitions, for so many bytes at once."""
    body = struct.pack(">iiiibi", -1, 500, 1, size, 0, 1) + text(topic)
    body += struct.pack(">i", len(partitions))
    each = b"".join(struct.pack(">iqi", number, 0, size) for number in partitions)
    return request(_FETCH, 4, body + each)


class RawConnection:
    """A blocking connection: one frame out, one frame in."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 30) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def send(self, frame: bytes) -> None:
        """Write one framed request."""
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The next response without its length."""
        size = self._reader.read(4)
        if len(size) < 4:
            raise ConnectionError("closed by the broker")
        return self._reader.read(struct.unpack(">i", size)[0])

    def ask(self, frame: bytes) -> bytes:
        """Send one request and read its answer."""
        self.send(frame)
        return self.receive()

    def close(self) -> None:
        """Close both directions."""
        self._reader.close()
        self._socket.close()


def produce_error(response: bytes, topic: str) -> int:
    """The error code of the only partition in a Produce v7 response."""
    position = 4 + 4 + 2 + len(topic) + 4 + 4
    return int(struct.unpack_from(">h", response, position)[0])


def first_ack_seconds(host: str, port: int, topic: str, acks: int, started: float) -> float:
    """Try until one record is acknowledged; seconds since `started` (a monotonic time)."""
    create = request(_METADATA, 4, struct.pack(">i", 1) + text(topic) + b"\x01")
    produce = produce_request(topic, 0, acks, record_batch(b"first"))
    while True:
        try:
            connection = RawConnection(host, port)
        except OSError:
            time.sleep(_RETRY_SECONDS)
            continue
        try:
            while True:
                connection.ask(create)
                if produce_error(connection.ask(produce), topic) == 0:
                    return time.monotonic() - started
                time.sleep(_RETRY_SECONDS)
        except OSError:
            time.sleep(_RETRY_SECONDS)
        finally:
            connection.close()
