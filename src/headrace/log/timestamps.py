"""Find records by their timestamps: time index, then batch headers, then one batch's records.

A batch of a kilobyte may have millions of records. Whoever has no time for that gives a budget and
is handed the batch (`LongBatch`), to look through elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from headrace.core.errors import HeadraceError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.segment import Segment
from headrace.protocol.records.budget import Budget, OverBudget
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import BatchHeader


class TimestampedOffset(NamedTuple):
    """A record's offset and timestamp, and the leader epoch it was written in."""

    offset: Offset
    timestamp: int
    epoch: LeaderEpoch


class LongBatch(OverBudget):
    """The search has come to a batch with more records than may be looked at here."""

    def __init__(
        self, look: Callable[[], TimestampedOffset | None], next_offset: Offset | None
    ) -> None:
        """`look` is for a worker: it says what the batch has. If that is nothing, the search
        goes on at `next_offset`; None: there is nothing more."""
        super().__init__()
        self.look = look
        self.next_offset = next_offset


def first_at_or_after(
    segments: Sequence[Segment],
    timestamp: int,
    start: Offset,
    end: Offset,
    budget: Budget | None = None,
) -> TimestampedOffset | None:
    """The first record in `[start, end)` whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.next_offset <= start or segment.max_timestamp < timestamp:
            continue
        found = _first_in(segment, timestamp, start, budget)
        if found is not None:
            return found if found.offset < end else None
    return None


def _first_in(
    segment: Segment, timestamp: int, start: Offset, budget: Budget | None
) -> TimestampedOffset | None:
    position = _start_of_search(segment, timestamp, start)
    for at, header in scan_headers(segment.file, position, segment.size):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        found = _look(
            _Batch(segment, at, header),
            lambda offset, stamp: stamp >= timestamp and offset >= start,
            budget,
            Offset(header.last_offset + 1),
        )
        if found is not None:
            return found
    return None


def _start_of_search(segment: Segment, timestamp: int, start: Offset) -> int:
    """A position before which no record is as late as `timestamp`.

    Entry (T, offset) says: up to the batch that ends at `offset` nothing is later than T. So the
    last entry below `timestamp` names a batch that may be skipped to; it is believed only if
    that batch has this very timestamp.
    """
    times = segment.times
    number = times.floor(timestamp - 1)
    offset = int(start)
    if number >= 0:
        stamp, relative = times.entry(number)
        position = segment.locate(segment.base_offset + relative)
        if position is not None:
            header = next(scan_headers(segment.file, position, segment.size))[1]
            if header.max_timestamp == stamp:
                offset = max(offset, segment.base_offset + relative)
            else:
                segment.rebuild_indexes("a time entry names a batch of another timestamp")
    return segment.locate(max(offset, segment.base_offset)) or 0


def latest_timestamp(
    segments: Sequence[Segment], start: Offset, end: Offset, budget: Budget | None = None
) -> TimestampedOffset | None:
    """The first record with the highest timestamp of all, if it lies in `[start, end)`."""
    alive = [s for s in segments if s.size and s.next_offset > start]
    if not alive:
        return None
    # max() keeps the first of equals: the earliest segment with that timestamp.
    segment = max(alive, key=lambda s: s.max_timestamp)
    position = segment.locate(segment.max_timestamp_offset)
    if position is None:
        return None
    header = next(scan_headers(segment.file, position, segment.size))[1]
    latest = header.max_timestamp
    found = _look(_Batch(segment, position, header), lambda _, stamp: stamp == latest, budget, None)
    return found if found is not None and start <= found.offset < end else None


class _Batch(NamedTuple):
    segment: Segment
    position: int
    header: BatchHeader

    def stamps(self, budget: Budget | None) -> Iterator[tuple[int, int]]:
        """Offset and timestamp of each record."""
        header = self.header
        data = self.segment.file.read(self.position, header.size)
        try:
            for record in iterate_records(data, 0, header, budget=budget):
                yield record.offset, record.timestamp
        except HeadraceError:
            # Producers' batches are appended by their headers; one whose records make no sense
            # from some point on can still be found as a whole.
            yield header.last_offset, header.max_timestamp

    def first(
        self, matches: Callable[[int, int], bool], budget: Budget | None = None
    ) -> TimestampedOffset | None:
        """The first record that matches by offset and timestamp."""
        for offset, stamp in self.stamps(budget):
            if matches(offset, stamp):
                epoch = LeaderEpoch(self.header.leader_epoch)
                return TimestampedOffset(Offset(offset), stamp, epoch)
        return None


def _look(
    batch: _Batch,
    matches: Callable[[int, int], bool],
    budget: Budget | None,
    next_offset: Offset | None,
) -> TimestampedOffset | None:
    try:
        return batch.first(matches, budget)
    except OverBudget:
        raise LongBatch(partial(batch.first, matches), next_offset) from None
