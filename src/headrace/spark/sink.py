"""Rows into topics: one idempotent producer per task, every row acknowledged before it ends.

At least once. A task that fails is run again by Spark, and so is a batch whose end did not reach
the checkpoint; what they had written stays, and is written again. The place for more than that is
`Delivery`: what a task did is told to the driver in its message, which `commit` receives.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.spark.delivery import Delivery, DeliveryOptions
from headrace.spark.workers import freeze_imports


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote, all of it acknowledged."""

    rows: int
    bytes: int


class BatchTopicWriter(DataSourceArrowWriter):
    """`df.write.format("headrace")`."""

    def __init__(self, options: DeliveryOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`."""

    def __init__(self, options: DeliveryOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


def each_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: Spark has update mode for that way alone, not for ours.

    The options are those of the topic sink, and so is what is promised: at least once.
    """
    given = dict(options)

    def write(rows: DataFrame, batch: int) -> None:  # noqa: ARG001
        rows.write.format("headrace").options(**given).mode("append").save()

    return write


def write_rows(options: DeliveryOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows; returns when the brokers have acknowledged every one."""
    freeze_imports()
    context = TaskContext.get()
    turn = 0 if context is None else context.partitionId()
    with Delivery(options, first_turn=turn) as delivery:
        for batch in batches:
            delivery.send(batch)
        delivery.flush()
        return Written(delivery.rows, delivery.bytes)
