"""One batch on its way to a broker: its records, who waits for them, and its place in sequence."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from headrace.client.core.models import Headers, RecordMetadata
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import ATTRIBUTES_AT, CRC_AT, parse_header

NO_SEQUENCE = -1
_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")
_CRC = Struct(">I")


class ProducerBatch:
    """Records of one partition that travel together.

    `waiters[i]` and `timestamps[i]` belong to record i. A batch given ready-made has no waiter
    per record but one for the whole. The sequence, once assigned, stays through all retries:
    it is what lets the broker tell a retry from a new batch.
    """

    __slots__ = (
        "attempts",
        "builder",
        "created_ms",
        "data",
        "deadline_ms",
        "expired",
        "in_flight",
        "is_closed",
        "may_be_written",
        "order",
        "partition",
        "producer",
        "reserved_bytes",
        "retry_at_ms",
        "sequence",
        "timestamps",
        "waiters",
    )

    def __init__(self, partition: TopicPartition, now_ms: float, deadline_ms: float) -> None:
        self.partition = partition
        self.builder = BatchBuilder()
        self.data: bytearray | None = None
        self.waiters: list[Any] = []
        self.timestamps: list[int] = []
        self.created_ms = now_ms
        self.deadline_ms = deadline_ms
        self.reserved_bytes = 0
        self.is_closed = False
        self.in_flight = False
        self.expired = False
        # Whether an attempt under its present sequence may have succeeded for all we know.
        self.may_be_written = False
        self.attempts = 0
        self.order: tuple[int, ...] = ()
        self.retry_at_ms = 0.0
        self.producer = (-1, -1)
        self.sequence = NO_SEQUENCE

    @classmethod
    def ready_made(
        cls, partition: TopicPartition, data: Buffer, waiter: Any, now_ms: float, deadline_ms: float
    ) -> "ProducerBatch":
        """A batch that the caller has encoded; only producer id, sequence and CRC are set here."""
        batch = cls(partition, now_ms, deadline_ms)
        header = parse_header(data)
        if header.size != len(data):
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"{len(data)} bytes given for a batch of {header.size}"
            )
        batch.data = bytearray(data)
        batch.builder.record_count = header.record_count
        batch.waiters = [waiter]
        batch.timestamps = [header.max_timestamp]
        batch.is_closed = True
        return batch

    @property
    def count(self) -> int:
        """How many records are in it."""
        return self.builder.record_count

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        waiter: Any,
    ) -> None:
        """Add a record; the caller has checked that the batch is open and has room."""
        self.builder.append(key, value, headers, timestamp_ms)
        self.waiters.append(waiter)
        self.timestamps.append(timestamp_ms)

    def encode(self, codec: int, level: int | None) -> bytearray:
        """The bytes to send, stamped with the producer's id, epoch and sequence."""
        if self.data is None:
            producer_id, epoch = self.producer
            self.data = self.builder.build(codec, producer_id, epoch, self.sequence, level=level)
            self.is_closed = True
        else:
            self._stamp(self.data)
        return self.data

    def _stamp(self, data: bytearray) -> None:
        stamp = _PRODUCER.pack(*self.producer, self.sequence)
        if data[_PRODUCER_AT : _PRODUCER_AT + _PRODUCER.size] == stamp:
            return
        # A copy, since the bytes of an earlier attempt may still lie in a socket's buffer.
        data = bytearray(data)
        data[_PRODUCER_AT : _PRODUCER_AT + _PRODUCER.size] = stamp
        _CRC.pack_into(data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
        self.data = data

    def results(self, base_offset: int, append_time_ms: int) -> list[tuple[Any, RecordMetadata]]:
        """What each waiter is told when the batch was written."""
        topic, partition = self.partition
        make = RecordMetadata
        if append_time_ms >= 0:
            times: Sequence[int] = [append_time_ms] * len(self.waiters)
        else:
            times = self.timestamps
        if base_offset < 0:
            return [
                (waiter, make(topic, partition, -1, time))
                for waiter, time in zip(self.waiters, times, strict=True)
            ]
        return [
            (waiter, make(topic, partition, offset, time))
            for offset, (waiter, time) in enumerate(
                zip(self.waiters, times, strict=True), base_offset
            )
        ]

    def failures(
        self, error: HeadraceError, record_errors: dict[int, str]
    ) -> list[tuple[Any, HeadraceError]]:
        """What each waiter is told when the batch was refused.

        Where the broker names the bad records, they get its reason; the others learn that they
        fell with them and may be sent again.
        """
        if not record_errors or len(self.waiters) != self.count:
            return [(waiter, error) for waiter in self.waiters]
        fellow = ApiError(
            error.code, "another record of the same batch was refused; this one may be sent again"
        )
        return [
            (
                waiter,
                ApiError(error.code, record_errors[index]) if index in record_errors else fellow,
            )
            for index, waiter in enumerate(self.waiters)
        ]

    def split(self, bytes_max: int) -> list["ProducerBatch"]:
        """The same records in batches of at most half the size, for one that was too large."""
        assert self.data is not None
        limit = min(bytes_max, max(len(self.data) // 2, 1))
        parts: list[ProducerBatch] = []
        for index, record in enumerate(iterate_records(self.data)):
            part = parts[-1] if parts else None
            size = len(record.key or b"") + len(record.value or b"")
            if part is None or part.builder.size + size > limit:
                part = ProducerBatch(self.partition, self.created_ms, self.deadline_ms)
                parts.append(part)
            part.append(
                record.key, record.value, record.headers, record.timestamp, self.waiters[index]
            )
        for index, part in enumerate(parts):
            part.is_closed = True
            part.order = (*self.order, index)
            part.attempts = self.attempts
            part.may_be_written = self.may_be_written
            part.reserved_bytes = self.reserved_bytes * part.count // self.count
        parts[0].reserved_bytes += self.reserved_bytes - sum(p.reserved_bytes for p in parts)
        return parts

    @property
    def can_split(self) -> bool:
        """Whether there are several records, each with a waiter of its own."""
        return self.count > 1 and len(self.waiters) == self.count
