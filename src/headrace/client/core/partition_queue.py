"""The way of one partition's batches: in a queue, in flight, back for another try, in order.

With idempotence every batch gets a sequence when it is first sent. Up to five may be in flight;
if one fails, those behind it will be refused as out of order and come back too. They are then
sent again one at a time, each only when it is the oldest unfinished one, which keeps the order.
Until the first batch of an epoch is written, it flies alone: a broker that does not know the
producer takes any sequence for its first, so a second batch could overtake a first that failed.

When the broker calls the oldest batch out of order, the sequence has a hole that nothing will
close (the broker forgot the producer, or an older batch was refused or given up). It also means
that this batch has not been written, so the partition can start over with a new epoch and
sequence 0 (KIP-360), once nothing of it is in flight any more.
"""

from collections import deque
from typing import NamedTuple

from headrace.client.core.batches import NO_SEQUENCE, ProducerBatch
from headrace.core.ids import TopicPartition

_SEQUENCE_MASK = 0x7FFFFFFF


class ProducerIdentity(NamedTuple):
    """The id and epoch that a broker gave, or that an epoch bump made."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)


class PartitionQueue:
    """Batches of one partition, and the sequence state they share."""

    __slots__ = (
        "_created",
        "_is_known",
        "assigned",
        "batches",
        "identity",
        "in_flight",
        "must_restart_sequence",
        "next_sequence",
        "open_batch",
        "partition",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.open_batch: ProducerBatch | None = None
        self.in_flight = 0
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        # Batches with a sequence that are not finished, in flight or back in the queue, in order.
        self.assigned: list[ProducerBatch] = []
        self.must_restart_sequence = False
        self._created = 0
        self._is_known = False  # whether the leader has written a batch of this epoch

    def add(self, batch: ProducerBatch) -> None:
        """A new batch at the end; it takes further records until it is closed."""
        batch.order = (self._created,)
        self._created += 1
        self.batches.append(batch)
        self.open_batch = None if batch.is_closed else batch

    def next_ready(self, now_ms: float) -> ProducerBatch | None:
        """The batch that may be sent next, if any may."""
        if not self.batches:
            return None
        batch = self.batches[0]
        if batch.retry_at_ms > now_ms:
            return None
        if self.must_restart_sequence and self.in_flight:
            return None
        must_be_oldest = not self.must_restart_sequence and (
            batch.sequence != NO_SEQUENCE or not self._is_known
        )
        if must_be_oldest and self.assigned and self.assigned[0] is not batch:
            return None
        return batch

    def take(self, identity: ProducerIdentity) -> ProducerBatch:
        """Move the head of the queue into flight, with a sequence if there is an identity."""
        batch = self.batches.popleft()
        batch.is_closed = True
        if batch is self.open_batch:
            self.open_batch = None
        if identity is not NO_IDENTITY:
            self._sequence(batch, identity)
        batch.in_flight = True
        batch.attempts += 1
        self.in_flight += 1
        return batch

    def _sequence(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        if self.must_restart_sequence:
            for returned in self.assigned:
                returned.sequence = NO_SEQUENCE
            self.assigned.clear()
            self.must_restart_sequence = False
            self._start_sequence(identity)
        elif self.identity != identity and not self.assigned:
            self._start_sequence(identity)
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            # What became of it under other numbers does not matter to these.
            batch.may_be_written = False
            batch.producer = self.identity
            self.next_sequence = (self.next_sequence + batch.count) & _SEQUENCE_MASK
            self.assigned.append(batch)

    def _start_sequence(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self._is_known = False

    def returned(self, batch: ProducerBatch) -> None:
        """The batch's request is over, whatever came of it."""
        batch.in_flight = False
        self.in_flight -= 1

    def written(self, batch: ProducerBatch) -> None:
        """The batch was written: its place in the sequence is settled."""
        if batch.sequence != NO_SEQUENCE:
            self.assigned.remove(batch)
            self._is_known = True

    def put_back(self, batch: ProducerBatch, retry_at_ms: float) -> None:
        """Back into the queue, in front of everything that was created later."""
        batch.retry_at_ms = retry_at_ms
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        index = 0
        while index < len(self.batches) and self.batches[index].order < batch.order:
            index += 1
        self.batches.insert(index, batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a batch that was too large in its place, sequences included."""
        if batch.sequence != NO_SEQUENCE:
            at = self.assigned.index(batch)
            self.assigned[at : at + 1] = parts
            sequence = batch.sequence
            for part in parts:
                part.sequence, part.producer = sequence, batch.producer
                sequence = (sequence + part.count) & _SEQUENCE_MASK
        for part in parts:
            self._insert(part)

    def rejected(self, batch: ProducerBatch) -> None:
        """No broker has written this batch or will: its sequence numbers may be used again.

        If later batches have theirs already, they keep them. The broker may have written one of
        those whose answer was lost, and must be able to recognize it; if it has not, it will
        call it out of order, and only then is it safe to start over.
        """
        if batch.sequence != NO_SEQUENCE:
            if self.assigned[-1] is batch:
                self.next_sequence = batch.sequence
            self.assigned.remove(batch)

    def given_up(self, batch: ProducerBatch) -> None:
        """This batch will not be sent again, and whether it was written is not known.

        Its numbers stay used: either it was written, or the next batch is out of order and
        makes the partition start over.
        """
        if batch.sequence != NO_SEQUENCE:
            self.assigned.remove(batch)
