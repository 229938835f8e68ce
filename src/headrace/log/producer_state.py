"""What each idempotent producer sent last to one partition, and whether a batch may follow it.

For every producer id: its epoch and its last five batches, because a producer may have five
requests in flight and must get the original offsets for whichever of them it sends again.

    sequence follows the last one ............ append
    same first and last sequence as one kept .. duplicate, answered from what is kept
    older epoch .............................. INVALID_PRODUCER_EPOCH
    anything else ............................ OUT_OF_ORDER_SEQUENCE_NUMBER
    nothing known of this producer ........... append, whatever the sequence (as Kafka does:
                                               its state may have expired)
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

BATCHES_KEPT: Final = 5
NO_SEQUENCE: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class BatchMetadata(NamedTuple):
    """A batch as the producer and the log know it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK


class ProducerStateEntry:
    """One producer id. `batches` are of the current epoch, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "seen",
        "seen_ms",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = -1
        self.transaction_start = -1
        self.last_timestamp = -1
        # Whether it appended (or was loaded) since expiry last looked, and when that look found
        # it so. By the broker's monotonic clock: records carry whatever time their sender likes,
        # and the wall clock may be set.
        self.seen = True
        self.seen_ms = -1.0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(batch)
        if len(self.batches) > BATCHES_KEPT:
            del self.batches[0]
        self.last_timestamp = batch.timestamp
        self.seen = True


class ProducerStates:
    """All producers of a partition, as of one offset."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(tuple(self._producers.items()))

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def put(self, producer_id: int, producer: ProducerStateEntry) -> None:
        self._producers[producer_id] = producer

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """None if the batch may be appended, the batch kept if it is a duplicate; else raises."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        sequence = header.base_sequence
        if header.producer_epoch == producer.epoch:
            last = producer.last_sequence
            if sequence == (last + 1) & _SEQUENCE_MASK:
                return None
            kept = self.find_duplicate(header)
            if kept is not None:
                return kept
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {sequence} after {last}",
            )
        if header.producer_epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"the last one seen is {producer.epoch}",
            )
        if sequence != 0:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {header.producer_epoch} "
                f"with sequence {sequence}",
            )
        return None

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch kept of which this one is a copy."""
        producer = self._producers.get(header.producer_id)
        if producer is not None and producer.epoch == header.producer_epoch:
            sequence, last_sequence = header.base_sequence, header.last_sequence
            for batch in producer.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == sequence:
                    return batch
        return None

    def update(self, header: BatchHeader, last_offset: int) -> None:
        """Add a batch that is in the log, its last record at `last_offset`."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = ProducerStateEntry(
                header.producer_epoch
            )
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            # A transaction marker: it may bump the epoch, and ends what was open.
            if header.producer_epoch != producer.epoch:
                producer.epoch = header.producer_epoch
                producer.batches.clear()
            producer.last_timestamp = header.max_timestamp
            producer.transaction_start = -1
            producer.seen = True
            return
        delta = header.last_offset_delta
        producer.add_batch(
            header.producer_epoch,
            BatchMetadata(header.last_sequence, last_offset, delta, header.max_timestamp),
        )
        if attributes & TRANSACTIONAL_BIT and producer.transaction_start < 0:
            producer.transaction_start = last_offset - delta

    def expire(self, now_ms: float, expiration_ms: int) -> int:
        """Forget producers that sent nothing for too long; one in a transaction stays.

        Never too soon: silence counts from the look that found a producer alive, at most one
        interval between looks after its last batch. A producer loaded from disk is taken for
        alive, since nobody knows how long it was silent.
        """
        gone: list[int] = []
        for producer_id, producer in self._producers.items():
            if producer.seen:
                producer.seen = False
                producer.seen_ms = now_ms
            if producer.transaction_start < 0 and now_ms - producer.seen_ms >= expiration_ms:
                gone.append(producer_id)
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)
