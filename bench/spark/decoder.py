"""The decoder by itself: rows a second of one core, counted in CPU time."""

from __future__ import annotations

import time

from bench.spark.rows import Values
from headrace.client import FetchedChunk, TopicPartition
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.spark import columns
from headrace.spark.decode import decode

_ROWS = 10_000
_REPEATS = 10


def chunk(records_per_batch: int) -> FetchedChunk:
    """A fetch answer of about a megabyte: 100-byte values, 8-byte keys."""
    parts = []
    for base in range(0, _ROWS, records_per_batch):
        records = [
            Record(base + n, 1_700_000_000_000 + n, b"k%07d" % n, b"x" * 100)
            for n in range(records_per_batch)
        ]
        parts.append(encode_batch(records))
    data = memoryview(bytearray(b"".join(parts)))
    return FetchedChunk(TopicPartition("t", 0), 0, data, _ROWS, _ROWS, 0)


def measure(values: Values, rounds: int) -> None:
    """Bytes to all seven columns."""
    for per_batch in (1, 10, 100, 1000):
        fetched = chunk(per_batch)
        _columns(fetched)
        for _ in range(rounds):
            started = time.process_time()
            for _ in range(_REPEATS):
                _columns(fetched)
            spent = time.process_time() - started
            values.add(f"decoder {per_batch}", _ROWS * _REPEATS / spent / 1000)


def _columns(fetched: FetchedChunk) -> None:
    decoded = decode([fetched], [(0, _ROWS)])
    columns.binary(decoded.data, decoded.key)
    columns.binary(decoded.data, decoded.value)
    columns.timestamps(decoded.timestamp_ms)
    columns.names([fetched.partition.topic], decoded.chunk)
