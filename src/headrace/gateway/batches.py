"""From records to batches: which partition each goes to, one batch per partition where it fits.

Pure and quick: this is where the time per record goes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.gateway.values import OutRecord
from headrace.protocol.murmur2 import partition_for_key
from headrace.protocol.records.encode import encode_record, pack_batch
from headrace.protocol.records.header import HEADER_SIZE, NO_SEQUENCE

# Producer id and epoch of batches that nobody can tell from their copies.
NO_PRODUCER: Final = (-1, -1)
_TIME_MAX: Final = 2**62


class Batch:
    """Records of one partition on their way, and what became of them.

    `indexes` are the records' places in the call; `first` is how many records of the call lie
    before it in its partition, which is its sequence where a producer vouches for it.
    """

    __slots__ = (
        "base_offset",
        "base_sequence",
        "data",
        "error",
        "indexes",
        "partition",
        "record_errors",
    )

    def __init__(
        self, partition: int, indexes: Sequence[int], base_sequence: int, data: bytearray
    ) -> None:
        self.partition = partition
        self.indexes = indexes
        self.base_sequence = base_sequence
        self.data = data
        self.base_offset = -1
        self.error: HeadraceError | None = None
        self.record_errors: dict[int, str] = {}


class PartitionedRecords(NamedTuple):
    """Indexes of records by partition; `strays` name a partition that does not exist."""

    indexes: dict[int, Sequence[int]]
    unknown: list[int]
    next_round_robin: int


def partition_records(
    records: Sequence[OutRecord], count: int, round_robin: int
) -> PartitionedRecords:
    """Choose partitions as the Kafka clients do for keys, and in turns without one."""
    if count == 1 and all(record[2] is None for record in records):
        return PartitionedRecords({0: range(len(records))}, [], round_robin)
    indexes: dict[int, list[int]] = {}
    unknown: list[int] = []
    for index, (_, key, wanted, _, _) in enumerate(records):
        if wanted is not None:
            partition = wanted
            if not 0 <= partition < count:
                unknown.append(index)
                continue
        elif key is None:
            partition = round_robin % count
            round_robin += 1
        else:
            partition = partition_for_key(key, count)
        found = indexes.get(partition)
        if found is None:
            indexes[partition] = [index]
        else:
            found.append(index)
    return PartitionedRecords({**indexes}, unknown, round_robin)


class BatchEncoder:
    """Makes the batches of one call."""

    __slots__ = ("_bytes_max", "_now_ms", "_producer", "_records")

    def __init__(
        self,
        records: Sequence[OutRecord],
        *,
        now_ms: int,
        bytes_max: int,
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> None:
        self._records = records
        self._now_ms = now_ms
        self._bytes_max = bytes_max
        self._producer = producer

    def encode(
        self,
        partition: int,
        indexes: Sequence[int],
        base_sequence: int = 0,
        bytes_max: int | None = None,
    ) -> list[Batch]:
        """One batch if it fits, else halves of it; a record too large for one goes alone.

        `bytes_max` is a limit of the topic's that is below ours.
        """
        data = self._encode_batch(indexes, base_sequence)
        most = self._bytes_max + HEADER_SIZE if bytes_max is None else bytes_max
        if len(data) <= most or len(indexes) == 1:
            return [Batch(partition, indexes, base_sequence, data)]
        return self.split(partition, indexes, base_sequence, bytes_max)

    def split(
        self,
        partition: int,
        indexes: Sequence[int],
        base_sequence: int,
        bytes_max: int | None = None,
    ) -> list[Batch]:
        """The same records in (at least) two batches."""
        middle = len(indexes) // 2
        return [
            *self.encode(partition, indexes[:middle], base_sequence, bytes_max),
            *self.encode(partition, indexes[middle:], base_sequence + middle, bytes_max),
        ]

    def _encode_batch(self, indexes: Sequence[int], base_sequence: int) -> bytearray:
        records, now_ms = self._records, self._now_ms
        encoded: list[bytes] = []
        add = encoded.append
        base_ms = max_ms = min_ms = _time(records[indexes[0]], now_ms)
        delta = 0
        for index in indexes:
            value, key, _, headers, given_ms = records[index]
            at_ms = now_ms if given_ms is None else given_ms
            if at_ms > max_ms:
                max_ms = at_ms
            elif at_ms < min_ms:
                min_ms = at_ms
            try:
                add(encode_record(delta, at_ms - base_ms, key, value, headers))
            except UnicodeEncodeError:
                raise ApiError(ErrorCode.INVALID_RECORD, "header names are UTF-8 text") from None
            delta += 1
        if min_ms < 0 or max_ms > _TIME_MAX:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP, "a time is given in milliseconds since 1970"
            )
        producer_id, epoch = self._producer
        return pack_batch(
            b"".join(encoded),
            attributes=0,
            last_offset_delta=delta - 1,
            base_timestamp=base_ms,
            max_timestamp=max_ms,
            record_count=delta,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=NO_SEQUENCE if producer_id < 0 else base_sequence,
        )


def _time(record: OutRecord, now_ms: int) -> int:
    return now_ms if record.timestamp_ms is None else record.timestamp_ms
