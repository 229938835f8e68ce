"""Tables as `headrace.spark.lake` writes them, driven by hand, without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.spark import lake
from headrace.spark.lake import StreamTableWriter, table_options
from headrace.spark.table_files import Attempt

ARCHIVE = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)
QUERY = "11111111-2222-3333-4444-555555555555"
OTHER_QUERY = "99999999-2222-3333-4444-555555555555"
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def rows(
    offsets: Iterable[int], *, topic: str = "clicks", partition: int = 0, day: int = 1
) -> pa.RecordBatch:
    """Records of one partition, all of one day."""
    time = datetime(2026, 3, day, 12, tzinfo=UTC)
    found = [
        {
            "key": b"k%d" % offset,
            "value": b"v%d" % offset,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": time,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(found, schema=_ARROW)


class StreamOfBatches:
    """What Spark does with a stream writer: made anew for each batch, shipped, committed."""

    def __init__(
        self, path: Path, query: str = QUERY, *, overwrite: bool = False, **options: str
    ) -> None:
        self._options = {"path": str(path), **options}
        self._overwrite = overwrite
        self.query = query

    def writer(self) -> StreamTableWriter:
        return StreamTableWriter(table_options(self._options, ARCHIVE, overwrite=self._overwrite))

    def task(
        self, writer: StreamTableWriter, batch: int, given: list[pa.RecordBatch], **place: int
    ) -> Any:
        """One attempt of one task, with a writer that went through pickle."""
        shipped: StreamTableWriter = pickle.loads(pickle.dumps(writer))
        before = lake._attempt
        number, attempt = place.get("task", 0), place.get("attempt", 0)
        lake._attempt = lambda writer: Attempt(self.query, batch, number, attempt, writer)
        try:
            return shipped.write(iter(given))
        finally:
            lake._attempt = before

    def run(self, batch: int, given: list[pa.RecordBatch]) -> None:
        """A batch of one task, from start to end."""
        writer = self.writer()
        message = self.task(writer, batch, given)
        writer.commit([message], batch)


def offsets_of(path: Path) -> list[int]:
    """All offsets in the table, sorted, doubles included."""
    found: list[int] = DeltaTable(path).to_pyarrow_table().column("offset").to_pylist()
    return sorted(found)


def parquet_files(path: Path) -> set[str]:
    """Names of all data files below a table, whether it knows them or not."""
    return {each.name for each in path.rglob("part-*.parquet")}
