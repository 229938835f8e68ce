"""What a log has promised about one partition, and whether a recovered log keeps it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import BatchHeader, iterate_headers
from headrace.protocol.records.patch import assign_offsets
from tests.support.history_checks import check_batches
from tests.support.log_checks import log_problems


@dataclass(frozen=True, slots=True)
class Sent:
    """One batch as its producer sent it, and where it went."""

    producer_id: int
    next_sequence: int
    produced: bytes
    first_offset: int
    stored: bytes


def produced_batch(producer_id: int, sequence: int, records: int = 2) -> bytes:
    """A batch that no other producer or sequence gives."""
    builder = BatchBuilder()
    for number in range(records):
        value = b"%d/%d/%d" % (producer_id, sequence, number)
        builder.append(None, value, timestamp=1_000_000 + sequence)
    return bytes(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def append_to(log: PartitionLog, produced: bytes, epoch: int) -> tuple[AppendInfo, bytes]:
    """Append as the leader does; the answer, and the batch as it was written."""
    buffer = bytearray(produced)
    info = log.append(list(iterate_headers(buffer)), memoryview(buffer), LeaderEpoch(epoch))
    return info, bytes(buffer)


@dataclass(slots=True)
class Ledger:
    """Promises about one partition of one topic id, as they stand at some moment."""

    topic_id: UUID
    written: dict[int, Sent] = field(default_factory=dict)  # by first offset, the newest there
    ever: set[bytes] = field(default_factory=set)  # every batch that was ever written
    flushed_end: int = 0  # everything before it must survive
    start_at_least: int = 0  # everything before it must stay deleted
    start_at_most: int = 0  # nothing from here on may be deleted

    def copy(self) -> "Ledger":
        return Ledger(
            self.topic_id,
            dict(self.written),
            set(self.ever),
            self.flushed_end,
            self.start_at_least,
            self.start_at_most,
        )

    def about_to_write(self, produced: bytes, log: PartitionLog, epoch: int) -> None:
        """The bytes may reach the disk from now on."""
        buffer = bytearray(produced)
        header = next(iterate_headers(buffer))[1]
        assign_offsets(buffer, 0, log.log_end_offset, epoch)
        first = int(log.log_end_offset)
        following = header.base_sequence + header.record_count
        sent = Sent(header.producer_id, following, produced, first, bytes(buffer))
        self.written[first] = sent
        self.ever.add(sent.stored)

    def about_to_truncate(self, offset: int) -> None:
        """Nothing from `offset` on is promised any more."""
        self.flushed_end = min(self.flushed_end, offset)
        self.written = {first: sent for first, sent in self.written.items() if first < offset}

    def required(self, log_start: int) -> Iterator[Sent]:
        for first, sent in sorted(self.written.items()):
            if log_start <= first < self.flushed_end:
                yield sent

    def newest_flushed(self) -> dict[int, Sent]:
        """The last flushed batch of each producer: if sent again, it must be recognised."""
        newest: dict[int, Sent] = {}
        for first, sent in sorted(self.written.items()):
            if first < self.flushed_end:
                newest[sent.producer_id] = sent
        return newest


def read_everything(log: PartitionLog) -> bytes:
    data, position = bytearray(), int(log.log_start_offset)
    while position < log.log_end_offset:
        chunk = bytes(log.read(Offset(position), 500, log.log_end_offset, at_least_one=True))
        assert chunk, f"nothing to read at {position}, log end {log.log_end_offset}"
        data += chunk
        position = last_header(chunk).last_offset + 1
    return bytes(data)


def last_header(batches: bytes) -> BatchHeader:
    *_, (_, header) = iterate_headers(batches)
    return header


def problems(log: PartitionLog, ledger: Ledger) -> list[str]:
    """What is wrong with a recovered log; its last act is to write to it."""
    # First: a damaged index is made anew by whoever uses it.
    found = log_problems(log)
    data = read_everything(log)
    found += [violation.message for violation in check_batches(data)]
    present = {
        header.base_offset: data[position : position + header.size]
        for position, header in iterate_headers(data)
    }
    found += [
        f"batch at {base} was never written"
        for base, batch in present.items()
        if batch not in ledger.ever
    ]
    start = int(log.log_start_offset)
    # Before the first flush nothing was promised, not even where the log begins.
    start_at_most = (
        max(ledger.start_at_most, ledger.start_at_least) if ledger.flushed_end else start
    )
    if not ledger.start_at_least <= start <= start_at_most:
        found.append(
            f"log starts at {start}, not in [{ledger.start_at_least}, {ledger.start_at_most}]"
        )
    found += [
        f"flushed batch at {sent.first_offset} is lost (log ends at {log.log_end_offset})"
        for sent in ledger.required(start)
        if present.get(sent.first_offset) != sent.stored
    ]
    if log.log_end_offset < ledger.flushed_end:
        found.append(f"log ends at {log.log_end_offset}, flushed up to {ledger.flushed_end}")
    found += _problems_with_times(log, [header for _, header in iterate_headers(data)])
    return found or _problems_in_use(log, ledger)


def _problems_with_times(log: PartitionLog, headers: list[BatchHeader]) -> list[str]:
    """Lookups by time, against a search by hand; all records of a batch have one timestamp."""
    found: list[str] = []
    start = int(log.log_start_offset)
    for wanted in sorted({header.max_timestamp for header in headers}):
        expected = next(h for h in headers if h.max_timestamp >= wanted)
        at = log.find_by_timestamp(wanted, log.log_end_offset)
        if at is None or at.offset != max(start, expected.base_offset):
            found.append(f"time {wanted} is first at {expected.base_offset}, not at {at}")
    return found


def _problems_in_use(log: PartitionLog, ledger: Ledger) -> list[str]:
    found: list[str] = []
    epoch = max(int(log.latest_epoch), 0) + 1
    for sent in ledger.newest_flushed().values():
        info, _ = append_to(log, sent.produced, epoch)
        if not info.duplicate or info.first_offset != sent.first_offset:
            found.append(f"batch at {sent.first_offset} was taken a second time: {info}")
    end = log.log_end_offset
    info, stored = append_to(log, produced_batch(999, 0), epoch)
    if info.first_offset != end or log.flush() != end + 2:
        found.append(f"a new batch went to {info.first_offset}, not to {end}")
    if bytes(log.read(end, 10_000, log.log_end_offset, at_least_one=True)) != stored:
        found.append("a new batch was not read back")
    return found
