"""The readers of `headrace.spark` driven by hand, without a JVM, as Spark would drive them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.client import Client, ProducerSettings
from headrace.spark.options import column_options, source_options
from headrace.spark.source import BatchReader, StreamReader

Row = dict[str, Any]
TIME_MS = 1_700_000_000_000
_PAIR = StructType().add("key", StringType()).add("value", BinaryType())
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_PAIR),
    "_error": StringType(),
    "_raw": BinaryType(),
    "_late_before": TimestampType(),
}


def schema_of(options: dict[str, str], value: DataType | None = None) -> StructType:
    """The schema that Spark would parse from what the format says."""
    names, values = column_options(options)
    types = dict(_TYPES)
    if values.format == "string":
        types["value"] = StringType()
    if value is not None:
        types["value"] = value
    schema = StructType()
    for name in names:
        schema.add(name, types[name])
    return schema


def batch_reader(options: dict[str, str], value: DataType | None = None) -> BatchReader:
    return BatchReader(source_options(options, streaming=False), schema_of(options, value))


def stream_reader(options: dict[str, str], value: DataType | None = None) -> StreamReader:
    return StreamReader(source_options(options, streaming=True), schema_of(options, value))


def rows_of(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition]) -> list[Row]:
    """Run every task in order, each with a reader that went through pickle."""
    found: list[Row] = []
    shipped: BatchReader | StreamReader = pickle.loads(pickle.dumps(reader))
    for partition in partitions:
        for batch in shipped.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def read_all(options: dict[str, str], value: DataType | None = None) -> list[Row]:
    """A whole batch read."""
    reader = batch_reader(options, value)
    return rows_of(reader, reader.partitions())


class StreamRun:
    """A stream batch by batch: each step is what a trigger does, the end is kept."""

    def __init__(
        self, options: dict[str, str], start: Any = None, value: DataType | None = None
    ) -> None:
        self.reader = stream_reader(options, value)
        self.planner = stream_reader(options, value)
        self.start = self.planner.initialOffset() if start is None else start
        self.tasks = 0
        self._is_new = start is None

    def step(self, limit: Any = None) -> list[Row]:
        """One trigger: the rows of the batch, none if there is nothing new.

        If the first batch of a new stream is empty, as one that only writes down where it begins,
        the second one counts.
        """
        limit = limit or self.planner.getDefaultReadLimit()
        end = self.planner.latestOffset(self.start, limit)
        if self._is_new and end == self.start:
            end = self.planner.latestOffset(self.start, limit)
        self._is_new = False
        if end == self.start:
            return []
        planned = self.planner.partitions(self.start, end)
        self.tasks = len(planned)
        found = rows_of(self.reader, planned)
        self.start = end
        return found

    def step_all(self) -> list[Row]:
        """One trigger without limits, as Trigger.Once has it."""
        return self.step(ReadAllAvailable())

    def stop(self) -> None:
        self.planner.stop()


def send(
    client: Client,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    codec: Any = "none",
    start_ms: int = TIME_MS,
    **more: Any,
) -> None:
    """Produce values a millisecond apart."""
    with client.producer(ProducerSettings(linger_ms=0, codec=codec)) as producer:
        sent = [
            producer.send(topic, value, partition=partition, timestamp_ms=start_ms + number, **more)
            for number, value in enumerate(values)
        ]
        producer.flush()
        for each in sent:
            each.result()


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that tell themselves apart."""
    return [b"v%d" % number for number in range(first, first + count)]


def values_of(rows: Iterable[Row]) -> list[bytes]:
    return [row["value"] for row in sorted(rows, key=lambda r: (r["partition"], r["offset"]))]
