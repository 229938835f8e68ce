"""Rows into topics: one idempotent producer per task, every row acknowledged before it ends.

At least once. A task that fails is run again by Spark, and so is a batch whose end did not reach
the checkpoint; what they had written stays, and is written again. The seam for more than that is
`Delivery`: what a task did is told to the driver in its message, which `commit` receives.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.client import Client, RecordMetadata, TopicPartition
from headrace.core.errors import ApiError, ErrorCode, InvalidRecord
from headrace.protocol.compression import Codec
from headrace.spark.encode import Ints, Rows, as_binary, encode
from headrace.spark.partitioning import Partitioner
from headrace.spark.sink_options import TopicSinkOptions

# Arrow joins columns with offsets of 32 bits: larger pieces are written in parts.
_PIECE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote, all of it acknowledged."""

    rows: int
    bytes: int


class BatchTopicWriter(DataSourceArrowWriter):
    """`df.write.format("headrace")`."""

    def __init__(self, options: TopicSinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`."""

    def __init__(self, options: TopicSinkOptions) -> None:
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


def write_rows(options: TopicSinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows; returns when the brokers have acknowledged every one."""
    context = TaskContext.get()
    turn = 0 if context is None else context.partitionId()
    with Delivery(options, first_turn=turn) as delivery:
        for batch in batches:
            for piece in _pieces(batch):
                delivery.send(piece)
        delivery.settle()
        return delivery.written


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and batch.nbytes > _PIECE_BYTES_MAX:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch


class Delivery:
    """A producer that is fed with columns, and what it was given so far."""

    def __init__(self, options: TopicSinkOptions, *, first_turn: int = 0) -> None:
        self._options = options
        self._codec = int(Codec[options.producer.codec.upper()])
        self._first_turn = first_turn
        self._client = Client(options.client)
        self._producer = self._client.producer(options.producer)
        self._partitioners: dict[str, Partitioner] = {}
        self._sent: deque[Future[RecordMetadata]] = deque()
        self._rows = self._bytes = 0

    def __enter__(self) -> "Delivery":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    @property
    def written(self) -> Written:
        """What was handed over; after `settle`, what is acknowledged."""
        return Written(self._rows, self._bytes)

    def send(self, batch: pa.RecordBatch, timestamp_ms: Ints | None = None) -> None:
        """Hand over rows, with their times if they have some; a failure of earlier ones raises."""
        columns = {name: batch.column(name) for name in self._options.columns}
        key = as_binary(columns["key"]) if "key" in columns else None
        if timestamp_ms is None:
            timestamp_ms = np.full(batch.num_rows, time.time_ns() // 1_000_000)
        rows = Rows(as_binary(columns["value"]), key, columns.get("headers"), timestamp_ms)
        topics, topic_of = self._topics(columns.get("topic"), len(rows))
        targets, target_of = self._targets(topics, topic_of, rows, columns.get("partition"))
        bytes_max = self._options.producer.batch_bytes
        for target, data in encode(rows, target_of, bytes_max=bytes_max, codec=self._codec):
            self._sent.append(self._producer.send_batch(targets[target], data))
            self._bytes += len(data)
        self._rows += len(rows)
        while self._sent and self._sent[0].done():
            _told(self._sent.popleft())

    def settle(self) -> None:
        """Wait until everything is acknowledged; raises what was not."""
        self._producer.flush()
        while self._sent:
            _told(self._sent.popleft())

    def _topics(self, column: pa.Array | None, rows: int) -> tuple[list[str], Ints]:
        """The topics that occur, and for each row which of them it goes to."""
        if column is None:
            return [str(self._options.topic)], np.zeros(rows, np.int64)
        if column.null_count:
            raise InvalidRecord(
                "a row has no topic: set the option 'topic', or leave such rows out"
            )
        coded = pc.dictionary_encode(column.cast(pa.string()))
        return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)

    def _targets(
        self,
        topics: Sequence[str],
        topic_of: Ints,
        rows: Rows,
        wanted: pa.Array | None,
    ) -> tuple[list[TopicPartition], Ints]:
        """The partitions of these topics, and for each row which of them it goes to."""
        targets: list[TopicPartition] = []
        target_of = np.zeros(len(rows), np.int64)
        for number, topic in enumerate(topics):
            partitioner = self._partitioner(topic)
            chosen = np.flatnonzero(topic_of == number)
            indices = pa.array(chosen)
            whole = len(topics) == 1
            placed = partitioner.place(
                len(chosen),
                rows.key if whole or rows.key is None else rows.key.take(indices),
                wanted if whole or wanted is None else wanted.take(indices),
            )
            target_of[chosen] = placed + len(targets)
            targets += [TopicPartition(topic, index) for index in range(partitioner.count)]
        return targets, target_of

    def _partitioner(self, topic: str) -> Partitioner:
        found = self._partitioners.get(topic)
        if found is None:
            count = len(self._client.topic(topic, create=True).partitions)
            found = self._partitioners[topic] = Partitioner(topic, count, self._first_turn)
        return found


def _told(sent: Future[RecordMetadata]) -> None:
    """Raise what became of a batch, with what to do about it."""
    try:
        sent.result()
    except ApiError as error:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        raise ApiError(
            error.code,
            f"{error.message}: no row may be larger than the topic's max.message.bytes, and "
            "neither may kafka.batch.size",
        ) from error
