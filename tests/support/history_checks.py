"""Judges a history against invariants I1 to I7, and I13's rule that a reader skips nothing.

A pure function of what clients recorded, shared by the simulation and by tests that kill real
processes. An ack with acks=1 (or any ack, where the operating system decides when to flush)
promises nothing across a power cut: such an ack is *weak* once a power cut follows it.
"""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

from headrace.core.ids import TopicPartition
from tests.support.history import FinalScan, History, Outcome, Read, Send

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise, by the number of its invariant."""

    invariant: str
    message: str


def check(history: History, *, flushed_before_ack: bool = True) -> list[Violation]:
    """All violations; `flushed_before_ack` is False under `log.flush.policy=os`."""
    partitions = dict.fromkeys(send.partition for send in history.sends)
    partitions.update(dict.fromkeys(scan.partition for scan in history.scans))
    found: list[Violation] = []
    for partition in partitions:
        judge = _Judge(history, partition, flushed_before_ack)
        found.extend(judge.violations())
    for scan in history.scans:
        found.extend(check_batches(scan.batches))
    return found


class _Judge:
    """Everything about one partition."""

    def __init__(
        self, history: History, partition: TopicPartition, flushed_before_ack: bool
    ) -> None:
        self.partition = partition
        self.sends = [send for send in history.sends if send.partition == partition]
        self.scans = [scan for scan in history.scans if scan.partition == partition]
        self._last_power_cut = max((c.at for c in history.crashes if c.power_cut), default=0)
        self.reads = [
            read
            for read in history.reads
            if read.partition == partition
            and (flushed_before_ack or read.ended > self._last_power_cut)
        ]
        self._flushed_before_ack = flushed_before_ack
        self.acks = [send for send in self.sends if send.outcome is Outcome.OK]
        self.firm_acks = [send for send in self.acks if not self._is_weak(send)]
        self.known = self._known_offsets()

    def _is_weak(self, send: Send) -> bool:
        promised = self._flushed_before_ack and send.acks == -1
        return not promised and (send.ended or 0) < self._last_power_cut

    def _known_offsets(self) -> tuple[list[int], list[int]]:
        """When which highest offset was known: (times, highest offset up to that time)."""
        events = [(send.ended or 0, send.offset or 0) for send in self.firm_acks]
        events += [(read.ended, read.records[-1][0]) for read in self.reads if read.records]
        times: list[int] = []
        highest: list[int] = []
        for time, offset in sorted(events):
            times.append(time)
            highest.append(max(offset, highest[-1] if highest else -1))
        return times, highest

    def _known_before(self, time: int) -> int:
        times, highest = self.known
        index = bisect_left(times, time)
        return highest[index - 1] if index else -1

    def violations(self) -> Iterator[Violation]:
        yield from self._nothing_lost()
        yield from self._one_value_per_offset()
        yield from self._offsets_grow()
        yield from self._no_phantoms()
        yield from self._no_duplicates()
        yield from self._send_order()
        yield from self._nothing_skipped()

    def _nothing_lost(self) -> Iterator[Violation]:
        for scan in self.scans:
            present = dict(scan.records)
            for send in self.firm_acks:
                assert send.offset is not None
                if send.offset < scan.log_start_offset:
                    continue  # retention or delete-records took it
                if send.offset >= scan.log_end_offset:
                    yield self._bad("I1", f"acked {_name(send)}, log ends at {scan.log_end_offset}")
                elif present.get(send.offset) != send.value:
                    yield self._bad("I1", f"acked {_name(send)}, not read back")

    def _one_value_per_offset(self) -> Iterator[Violation]:
        values: dict[int, bytes] = {}
        for offset, value in self._sightings():
            if values.setdefault(offset, value) != value:
                yield self._bad(
                    "I2", f"offset {offset} is {_short(values[offset])} and {_short(value)}"
                )

    def _sightings(self) -> Iterator[tuple[int, bytes]]:
        for send in self.firm_acks:
            assert send.offset is not None
            yield send.offset, send.value
        for read in self.reads:
            yield from read.records
        for scan in self.scans:
            yield from scan.records

    def _offsets_grow(self) -> Iterator[Violation]:
        taken: dict[int, Send] = {}
        for send in self.firm_acks:
            assert send.offset is not None
            known = self._known_before(send.began)
            if send.offset <= known:
                yield self._bad("I3", f"acked {_name(send)}, but {known} was known before")
            if send.offset in taken:
                yield self._bad("I3", f"{_name(send)} shares its offset with another ack")
            taken[send.offset] = send

    def _no_phantoms(self) -> Iterator[Violation]:
        by_value = {send.value: send for send in self.sends}
        for offset, value in dict.fromkeys(self._read_records()):
            send = by_value.get(value)
            if send is None:
                yield self._bad("I4", f"offset {offset} holds {_short(value)}, which nobody sent")
            elif send.outcome is Outcome.FAILED:
                yield self._bad("I4", f"{_short(value)} failed for certain, but is at {offset}")
            elif send.outcome is Outcome.UNKNOWN and offset <= self._known_before(send.began):
                yield self._bad("I4", f"{_short(value)} appeared at {offset}, below what was known")

    def _read_records(self) -> Iterator[tuple[int, bytes]]:
        for source in self._sources():
            yield from source.records

    def _sources(self) -> list[Read | FinalScan]:
        return [*self.reads, *self.scans]

    def _no_duplicates(self) -> Iterator[Violation]:
        idempotent = {send.value for send in self.sends if send.idempotent}
        places: defaultdict[bytes, set[int]] = defaultdict(set)
        for offset, value in self._read_records():
            if value in idempotent:
                places[value].add(offset)
        for value, offsets in places.items():
            if len(offsets) > 1:
                yield self._bad("I5", f"{_short(value)} is at offsets {sorted(offsets)}")

    def _send_order(self) -> Iterator[Violation]:
        sent = {send.value: send for send in self.sends if send.idempotent}
        for scan in self.scans:
            newest: dict[str, Send] = {}
            for offset, value in scan.records:
                send = sent.get(value)
                if send is None:
                    continue
                before = newest.get(send.producer)
                if before is not None and before.began > send.began:
                    other = _short(before.value)
                    yield self._bad("I6", f"{_short(value)} at {offset} was sent before {other}")
                newest[send.producer] = send

    def _nothing_skipped(self) -> Iterator[Violation]:
        """For logs that are not compacted and hold no control batches."""
        for source in self._sources():
            expected = _first_offset(source)
            for offset, _ in source.records:
                if offset != expected:
                    yield self._bad("I13", f"expected offset {expected}, got {offset}")
                    break
                expected += 1
            if isinstance(source, FinalScan) and expected < source.log_end_offset:
                yield self._bad("I13", f"read up to {expected} of {source.log_end_offset}")

    def _bad(self, invariant: str, message: str) -> Violation:
        return Violation(invariant, f"{self.partition}: {message}")


def _first_offset(source: Read | FinalScan) -> int:
    return source.log_start_offset if isinstance(source, FinalScan) else source.from_offset


def _name(send: Send) -> str:
    return f"{_short(send.value)} (acks={send.acks}) at offset {send.offset}"


def _short(value: bytes) -> str:
    return repr(value if len(value) <= 40 else value[:37] + b"...")


def check_batches(data: bytes) -> list[Violation]:
    """I7 for a run of whole batches, by a parser that shares nothing with the product's."""
    found: list[Violation] = []
    position, next_offset = 0, None
    while position < len(data):
        if len(data) - position < _HEADER.size:
            found.append(Violation("I7", f"{len(data) - position} stray bytes at {position}"))
            break
        fields = _HEADER.unpack_from(data, position)
        base, length, magic, crc, last_delta, record_count = (
            *fields[:2],
            *fields[3:5],
            fields[6],
            fields[12],
        )
        end = position + 12 + length
        if magic != 2 or end > len(data) or length < _HEADER.size - 12:
            found.append(Violation("I7", f"no whole batch at {position} (offset {base})"))
            break
        if crc32c.crc32c(data[position + _CRC_FROM : end]) != crc:
            found.append(Violation("I7", f"checksum of the batch at offset {base} is wrong"))
        if last_delta != record_count - 1 or record_count < 1:
            found.append(Violation("I7", f"batch at {base}: {record_count} records, {last_delta=}"))
        if fields[8] < fields[7]:
            found.append(Violation("I7", f"batch at {base}: largest timestamp before the first"))
        if next_offset is not None and base != next_offset:
            found.append(Violation("I7", f"batch at {base} follows offset {next_offset - 1}"))
        next_offset = base + last_delta + 1
        position = end
    return found
