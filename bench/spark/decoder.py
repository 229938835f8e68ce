"""The decoder by itself: rows a second of one core, counted in CPU time."""

from __future__ import annotations

import random
import time

import pyarrow as pa

from bench.spark.rows import Values
from headrace.client import FetchedChunk, TopicPartition
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.spark.fetch import Fetched
from headrace.spark.options import COLUMNS
from headrace.spark.options import Values as Typed
from headrace.spark.rows import RowBuilder

_ROWS = 10_000
_REPEATS = 10
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
}
_SCHEMA = pa.schema([(name, _TYPES[name]) for name in COLUMNS])


def chunk(records_per_batch: int, *, varied: bool = False) -> FetchedChunk:
    """A fetch answer of about a megabyte: 8-byte keys, values of 100 bytes or around that."""
    draw = random.Random(records_per_batch)
    parts = []
    for base in range(0, _ROWS, records_per_batch):
        records = [
            Record(
                base + n,
                1_700_000_000_000 + n,
                b"k%07d" % n,
                b"x" * (draw.randint(80, 120) if varied else 100),
            )
            for n in range(records_per_batch)
        ]
        parts.append(encode_batch(records))
    data = memoryview(bytearray(b"".join(parts)))
    return FetchedChunk(TopicPartition("t", 0), 0, data, _ROWS, _ROWS, 0)


def measure(values: Values, rounds: int) -> None:
    """Bytes to all seven columns."""
    fetched = {f"decoder {count}": chunk(count) for count in (1, 10, 100, 1000)}
    maker = RowBuilder(_SCHEMA, Typed())
    fetched["decoder varied"] = chunk(1000, varied=True)
    for name, each in fetched.items():
        _columns(maker, each)
        for _ in range(rounds):
            started = time.process_time()
            for _ in range(_REPEATS):
                _columns(maker, each)
            spent = time.process_time() - started
            values.add(name, _ROWS * _REPEATS / spent / 1000)


def _columns(maker: RowBuilder, fetched: FetchedChunk) -> None:
    """What a task does with an answer; every record must come out of it."""
    batches = maker.batches(Fetched([fetched], [(0, _ROWS)]))
    assert sum(batch.num_rows for batch in batches) == _ROWS
