"""The producer without I/O: gather records into batches, send them in order, judge the answers.

A sender calls `append` for each record, `drain` for the requests that are due, `on_response` with
what came of each, and `expire` now and then; `next_due_ms` says when to come back. Waiters are
opaque here and are told their outcome through `complete`.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any

from headrace.client.core.batches import ProducerBatch
from headrace.client.core.errors import DeliveryTimedOut, error_for
from headrace.client.core.lookups import STALE_METADATA
from headrace.client.core.models import Headers, RecordMetadata
from headrace.client.core.operations import Session
from headrace.client.core.partition_queue import NO_IDENTITY, PartitionQueue, ProducerIdentity
from headrace.client.core.planned_produce import PlannedProduce, plan_produce, produce_outcomes
from headrace.client.core.produce_outcome import (
    ProduceOutcome,
    failure_outcome,
    response_outcome,
)
from headrace.client.core.settings import ProducerSettings
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.files import Buffer
from headrace.core.ids import LeaderEpoch, NodeId, TopicPartition
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

CompletionCallback = Callable[[Any, RecordMetadata | HeadraceError], None]

_EPOCH_MAX = 32767
_RECORD_OVERHEAD = 30
_NEEDS_NEW_EPOCH = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})


class AppendResult(Enum):
    """What a record did to its partition's queue."""

    SAME_BATCH = auto()
    FIRST_BATCH = auto()  # a batch was begun where none waited: its linger starts
    BATCH_FULL = auto()  # a batch was begun behind one that may go at once


class RecordAccumulator:
    """Queues for all partitions, the producer's identity, and the buffer's size."""

    def __init__(
        self, session: Session, settings: ProducerSettings, complete: CompletionCallback
    ) -> None:
        self._session = session
        self._settings = settings
        self._complete = complete
        self._codec = int(Codec[settings.codec.upper()])
        self._buffer_bytes = settings.buffer_bytes
        self._batch_bytes = settings.batch_bytes
        self._delivery_timeout_ms = settings.delivery_timeout_ms
        self._queues: dict[str, list[PartitionQueue]] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._node_calls: dict[NodeId, int] = {}
        self._flushing = 0
        self.identity = NO_IDENTITY
        self.buffered_bytes = 0

    # -- records in

    def append(
        self,
        topic: str,
        partition: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        waiter: Any,
        now_ms: float,
    ) -> "AppendResult":
        """Add a record; says whether the sender has something new to look at."""
        size = _RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(len(name) + len(data or b"") + 10 for name, data in headers)
        try:
            batch = self._queues[topic][partition].open_batch
        except (KeyError, IndexError):
            batch = None
        appended = AppendResult.SAME_BATCH
        if batch is None or batch.reserved_bytes + size > self._batch_bytes:
            queue = self._queue(topic, partition)
            appended = AppendResult.FIRST_BATCH if not queue.batches else AppendResult.BATCH_FULL
            batch = ProducerBatch(queue.partition, now_ms, now_ms + self._delivery_timeout_ms)
            batch.append(key, value, headers, timestamp_ms, waiter)
            # Queued only now: a record that cannot be encoded must not leave an empty batch.
            self._enqueue(queue, batch)
        else:
            batch.builder.append(key, value, headers, timestamp_ms)
            batch.waiters.append(waiter)
            batch.timestamps.append(timestamp_ms)
        batch.reserved_bytes += size
        self.buffered_bytes += size
        return appended

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if queue.open_batch is not None:
            queue.open_batch.is_closed = True
        queue.add(batch)
        self._active[queue.partition] = queue

    def append_batch(
        self, partition: TopicPartition, data: Buffer, waiter: Any, now_ms: float
    ) -> None:
        """Add a batch that the caller has encoded; its waiter gets its first record's offset."""
        queue = self._queue(partition.topic, partition.partition)
        deadline_ms = now_ms + self._delivery_timeout_ms
        batch = ProducerBatch.ready_made(queue.partition, data, waiter, now_ms, deadline_ms)
        self._enqueue(queue, batch)
        batch.reserved_bytes = len(data)
        self.buffered_bytes += len(data)

    def has_room(self, size: int) -> bool:
        """Whether a record fits the buffer; one larger than the whole may enter an empty one."""
        return self.buffered_bytes + size <= self._buffer_bytes or not self.buffered_bytes

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = []
        while partition >= len(queues):
            queues.append(PartitionQueue(TopicPartition(topic, len(queues))))
        return queues[partition]

    # -- requests out

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id must be asked for before anything can be sent."""
        return self._settings.is_idempotent and self.identity is NO_IDENTITY and bool(self._active)

    def stale_topics(self, now_ms: float) -> set[str]:
        """Topics whose leaders must be looked up before their batches can go."""
        age = self._session.settings.metadata_age_ms_max
        cluster = self._session.cluster
        return {
            partition.topic
            for partition in self._active
            if cluster.is_stale(partition.topic, now_ms, age) or cluster.leader(partition) is None
        }

    @property
    def is_idle(self) -> bool:
        """Whether every record has been settled."""
        return not self._active

    def begin_flush(self) -> None:
        """Stop waiting for batches to fill until `end_flush`."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1

    def drain(self, now_ms: float) -> list[PlannedProduce]:
        """The requests that are due now; their batches count as in flight from here on."""
        if self.needs_identity:
            return []
        calls: list[PlannedProduce] = []
        while True:
            by_node = self._due(now_ms)
            if not by_node:
                return calls
            for node, queues in by_node.items():
                calls.extend(self._requests(node, queues))

    def _due(self, now_ms: float) -> dict[NodeId, list[PartitionQueue]]:
        by_node: dict[NodeId, list[PartitionQueue]] = {}
        leader = self._session.cluster.leader
        for partition, queue in self._active.items():
            batch = queue.next_ready(now_ms)
            if batch is None or not self._is_due(queue, batch, now_ms):
                continue
            node = leader(partition)
            if node is None or self._node_calls.get(node, 0) >= self._settings.in_flight_max:
                continue
            if queue.must_restart_sequence and not self._ensure_newer_epoch(queue):
                return {}
            by_node.setdefault(node, []).append(queue)
        return by_node

    def _is_due(self, queue: PartitionQueue, batch: ProducerBatch, now_ms: float) -> bool:
        return (
            batch.is_closed
            or batch.attempts > 0
            or self._flushing > 0
            or now_ms >= batch.created_ms + self._settings.linger_ms
            or len(queue.batches) > 1
            or self.buffered_bytes >= self._settings.buffer_bytes
        )

    def _ensure_newer_epoch(self, queue: PartitionQueue) -> bool:
        """Make sure that the partition has a newer identity to start over with (KIP-360)."""
        if queue.identity == self.identity:
            if self.identity.epoch >= _EPOCH_MAX:
                self.identity = NO_IDENTITY
                return False
            self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        return True

    def _requests(self, node: NodeId, queues: Iterable[PartitionQueue]) -> list[PlannedProduce]:
        calls: list[PlannedProduce] = []
        batches: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if self._node_calls.get(node, 0) >= self._settings.in_flight_max:
                break
            batch = queue.take(self.identity)
            data = batch.encode(self._codec, self._settings.compression_level)
            if batches and size + len(data) > self._settings.request_bytes_max:
                calls.append(self._call(node, batches))
                batches, size = [], 0
            batches.append(batch)
            size += len(data)
        if batches:
            calls.append(self._call(node, batches))
        return calls

    def _call(self, node: NodeId, batches: list[ProducerBatch]) -> PlannedProduce:
        self._node_calls[node] = self._node_calls.get(node, 0) + 1
        return plan_produce(self._session, self._settings.acks_number, node, batches)

    # -- answers in

    def on_response(
        self, call: PlannedProduce, response: Message | HeadraceError | None, now_ms: float
    ) -> None:
        """Take what came of a request: an answer, a failure, or None where none is expected."""
        self._node_calls[call.send.node] -= 1
        if isinstance(response, ProduceResponse):
            outcomes = produce_outcomes(self._session, call, response)
            for batch in call.batches:
                outcome = outcomes.get(batch.partition)
                if outcome is None:
                    error = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "not answered", "produce")
                    self._failed(batch, error, ProduceOutcome.UNKNOWN, {}, now_ms)
                else:
                    self._handle_response(batch, outcome, now_ms)
        elif isinstance(response, HeadraceError):
            known = failure_outcome(response)
            for batch in call.batches:
                self._failed(batch, response, known, {}, now_ms)
        else:
            for batch in call.batches:
                self._written(batch, -1, -1)

    def _handle_response(
        self, batch: ProducerBatch, outcome: PartitionProduceResponse, now_ms: float
    ) -> None:
        code = outcome.error_code
        known = response_outcome(code, outcome.base_offset)
        if known is ProduceOutcome.WRITTEN:
            self._written(batch, outcome.base_offset, outcome.log_append_time_ms)
            return
        leader = outcome.current_leader
        if leader.leader_id >= 0:
            self._session.cluster.update_leader(
                batch.partition, NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch)
            )
        error = error_for(code, outcome.error_message, f"produce to {batch.partition}")
        reasons = {
            bad.batch_index: bad.batch_index_error_message or error.message
            for bad in outcome.record_errors
        }
        self._failed(batch, error, known, reasons, now_ms)

    def _written(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        queue = self._returned(batch)
        queue.written(batch)
        self._release(batch, queue)
        if not batch.expired:
            for waiter, metadata in batch.results(base_offset, append_time_ms):
                self._complete(waiter, metadata)

    def _failed(
        self,
        batch: ProducerBatch,
        error: HeadraceError,
        known: ProduceOutcome,
        reasons: dict[int, str],
        now_ms: float,
    ) -> None:
        queue = self._returned(batch)
        if known is ProduceOutcome.UNKNOWN:
            batch.may_be_written = True
        code = error.code
        if code in STALE_METADATA:
            self._session.cluster.mark_stale([batch.partition.topic])
        if batch.expired:
            queue.given_up(batch)
            self._release(batch, queue)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.can_split:
            queue.replace(batch, batch.split(self._settings.batch_bytes))
        elif self._may_retry(queue, batch, error):
            delay_ms = self._session.backoff.delay_ms(batch.attempts)
            queue.put_back(batch, now_ms + delay_ms)
        else:
            if batch.may_be_written:
                queue.given_up(batch)
            else:
                queue.rejected(batch)
            self._release(batch, queue)
            for waiter, reason in batch.failures(error, reasons):
                self._complete(waiter, reason)

    def _may_retry(self, queue: PartitionQueue, batch: ProducerBatch, error: HeadraceError) -> bool:
        if self._settings.is_idempotent:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # Behind an older batch that failed this heals by itself; the oldest one of all
                # has nothing to wait for: the broker no longer knows what came before it.
                if queue.assigned[0] is batch:
                    queue.must_restart_sequence = True
                return True
            if error.code in _NEEDS_NEW_EPOCH:
                queue.must_restart_sequence = True
                if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    self.identity = NO_IDENTITY
                return True
        return error.retriable

    def _returned(self, batch: ProducerBatch) -> PartitionQueue:
        queue = self._queue(*batch.partition)
        queue.returned(batch)
        return queue

    def _release(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        self.buffered_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        if not queue.batches and not queue.in_flight:
            self._active.pop(batch.partition, None)

    # -- time

    def expire(self, now_ms: float) -> None:
        """Give up batches whose delivery time is over, in flight or not."""
        for queue in list(self._active.values()):
            late = [batch for batch in queue.batches if batch.deadline_ms <= now_ms]
            for batch in late:
                queue.batches.remove(batch)
                if batch is queue.open_batch:
                    queue.open_batch = None
                queue.given_up(batch)
                self._release(batch, queue)
                self._time_out(batch)
            for batch in queue.assigned:
                if batch.in_flight and not batch.expired and batch.deadline_ms <= now_ms:
                    batch.expired = True
                    self._time_out(batch)

    def _time_out(self, batch: ProducerBatch) -> None:
        limit = self._settings.delivery_timeout_ms
        tried = f"sent {batch.attempts} times" if batch.attempts else "never sent"
        error = DeliveryTimedOut(
            f"records for {batch.partition} were not acknowledged within {limit} ms ({tried})",
            hint="look whether the partition has a leader and the brokers answer",
        )
        for waiter in batch.waiters:
            self._complete(waiter, error)

    def fail_all(self, error: HeadraceError) -> None:
        """Complete everything that is not in flight with an error."""
        for queue in list(self._active.values()):
            while queue.batches:
                batch = queue.batches.popleft()
                queue.given_up(batch)
                self._release(batch, queue)
                for waiter in batch.waiters:
                    self._complete(waiter, error)
            queue.open_batch = None

    def next_due_ms(self, now_ms: float) -> float:
        """When something will be due by the clock alone; infinity when nothing waits for it."""
        due = float("inf")
        for queue in self._active.values():
            if queue.batches:
                batch = queue.batches[0]
                at = batch.created_ms + self._settings.linger_ms
                if batch.is_closed or batch.attempts or at <= now_ms:
                    at = batch.retry_at_ms
                due = min(due, at if at > now_ms else float("inf"), batch.deadline_ms)
            for batch in queue.assigned:
                if not batch.expired:
                    due = min(due, batch.deadline_ms)
        return due
