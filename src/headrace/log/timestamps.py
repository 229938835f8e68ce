"""Find records by their timestamps: time index, then batch headers, then one batch's records."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core.errors import HeadraceError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.segment import Segment
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import BatchHeader


class TimestampedOffset(NamedTuple):
    """A record's offset and timestamp, and the leader epoch it was written in."""

    offset: Offset
    timestamp: int
    epoch: LeaderEpoch


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start: Offset, end: Offset
) -> TimestampedOffset | None:
    """The first record in `[start, end)` whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.next_offset <= start or segment.max_timestamp < timestamp:
            continue
        found = _first_in(segment, timestamp, start)
        if found is not None:
            return found if found.offset < end else None
    return None


def _first_in(segment: Segment, timestamp: int, start: Offset) -> TimestampedOffset | None:
    position = _start_of_search(segment, timestamp, start)
    for found, header in scan_headers(segment.file, position, segment.size):
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        for offset, stamp in _stamps(segment, found, header):
            if stamp >= timestamp and offset >= start:
                return TimestampedOffset(Offset(offset), stamp, LeaderEpoch(header.leader_epoch))
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
    segments: Sequence[Segment], start: Offset, end: Offset
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
    for offset, stamp in _stamps(segment, position, header):
        if stamp == header.max_timestamp:
            if start <= offset < end:
                return TimestampedOffset(Offset(offset), stamp, LeaderEpoch(header.leader_epoch))
            return None
    return None


def _stamps(segment: Segment, position: int, header: BatchHeader) -> list[tuple[int, int]]:
    """Offset and timestamp of each record of a batch."""
    data = segment.file.read(position, header.size)
    try:
        return [(record.offset, record.timestamp) for record in iterate_records(data, 0, header)]
    except HeadraceError:
        # Producers' batches are appended by their headers; one whose records make no sense can
        # still be found as a whole.
        return [(header.last_offset, header.max_timestamp)]
