"""Columns of rows, delivered to topics by one idempotent producer."""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client import (
    Client,
    ClientSettings,
    ProducerSettings,
    RecordMetadata,
    TopicPartition,
)
from headrace.core.errors import ApiError, ErrorCode, InvalidRecord
from headrace.protocol.compression import Codec
from headrace.spark.encode import Ints, Rows, as_binary, encode
from headrace.spark.partitioning import Partitioner

# Arrow joins columns with offsets of 32 bits: larger pieces are written in parts.
_PIECE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Where rows go, and which of their columns say so; it pickles, and goes to the executors.

    `columns` are those to look at, of key, value, headers, topic and partition; `topic` is for
    rows that have no such column.
    """

    client: ClientSettings
    producer: ProducerSettings
    topic: str | None
    columns: tuple[str, ...]


class Delivery:
    """A producer that is fed with columns, and what it was given so far."""

    def __init__(self, options: DeliveryOptions, *, first_turn: int = 0) -> None:
        self._options = options
        self._codec = int(Codec[options.producer.codec.upper()])
        self._first_turn = first_turn
        self._client = Client(options.client)
        self._producer = self._client.producer(options.producer)
        self._partitioners: dict[str, Partitioner] = {}
        self._sent: deque[Future[RecordMetadata]] = deque()
        self.rows = self.bytes = 0

    def __enter__(self) -> "Delivery":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def send(self, batch: pa.RecordBatch, timestamp_ms: Ints | None = None) -> None:
        """Hand over rows, with their times if they have some; a failure of earlier ones raises."""
        count = batch.num_rows
        if count > 1 and batch.nbytes > _PIECE_BYTES_MAX:
            half, times = count // 2, timestamp_ms
            self.send(batch.slice(0, half), None if times is None else times[:half])
            self.send(batch.slice(half), None if times is None else times[half:])
        elif count:
            self._send(batch, timestamp_ms)

    def _send(self, batch: pa.RecordBatch, timestamp_ms: Ints | None) -> None:
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
            self.bytes += len(data)
        self.rows += len(rows)
        while self._sent and self._sent[0].done():
            _raise_failure(self._sent.popleft())

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; one that is not there may be made."""
        return self._partitioner(topic).count

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises what was not."""
        self._producer.flush()
        while self._sent:
            _raise_failure(self._sent.popleft())

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
            placed = partitioner.assign(
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


def _raise_failure(sent: Future[RecordMetadata]) -> None:
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
