"""Find records by their timestamps: time index, then batch headers, then one batch's records.

A search may open every segment of a log and unfold a batch, so it is for a worker. Indexes of the
newest segment are read under the lock that appends take: whoever finds one wrong makes it anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from headrace.core.errors import HeadraceError, StorageError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.log_parts import LogParts
from headrace.log.segment import Segment
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import BatchHeader


class TimestampedOffset(NamedTuple):
    """A record's offset and timestamp, and the leader epoch it was written in."""

    offset: Offset
    timestamp: int
    epoch: LeaderEpoch


def find_by_timestamp(log: LogParts, timestamp: int, end: Offset) -> TimestampedOffset | None:
    """The first record below `end` whose timestamp is `timestamp` or later."""
    with _storage_errors(log):
        return _first_at_or_after(log, timestamp, end)


def max_timestamp(log: LogParts, end: Offset) -> TimestampedOffset | None:
    """The first record with the highest timestamp, if it lies below `end`."""
    with _storage_errors(log):
        return _latest(log, end)


@contextmanager
def _storage_errors(log: LogParts) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot search {log.directory}: {error}") from error


def _first_at_or_after(log: LogParts, timestamp: int, end: Offset) -> TimestampedOffset | None:
    segments, start = log.segments.all, log.log_start_offset
    for segment in segments:
        if segment.next_offset <= start:
            continue
        with log.lock if segment is segments[-1] else nullcontext():
            if segment.indexes.max_timestamp < timestamp:
                continue
            position = _start_of_search(segment, timestamp, start)
        found = _first_from(segment, position, timestamp, start)
        if found is not None:
            return found if found.offset < end else None
    return None


def _first_from(
    segment: Segment, position: int, timestamp: int, start: Offset
) -> TimestampedOffset | None:
    for at, header in scan_headers(segment.file, position, segment.size):
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            found = _first_in(segment, at, header, timestamp, start)
            if found is not None:
                return found
    return None


def _start_of_search(segment: Segment, timestamp: int, start: Offset) -> int:
    """A position before which no record is as late as `timestamp`.

    Entry (T, offset) says: up to the batch that ends at `offset` nothing is later than T. So the
    last entry below `timestamp` names a batch that may be skipped to; it is believed only if
    that batch has this very timestamp.
    """
    times = segment.indexes.time_index
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
                segment.indexes.rebuild("a time entry names a batch of another timestamp")
    return segment.locate(max(offset, segment.base_offset)) or 0


def _latest(log: LogParts, end: Offset) -> TimestampedOffset | None:
    segments, start = log.segments.all, log.log_start_offset
    latest: Segment | None = None
    for segment in segments:
        if segment.size and segment.next_offset > start:
            with log.lock if segment is segments[-1] else nullcontext():
                # The earliest segment with that timestamp.
                if latest is None or segment.indexes.max_timestamp > latest.indexes.max_timestamp:
                    latest = segment
    if latest is None:
        return None
    with log.lock if latest is segments[-1] else nullcontext():
        position = latest.locate(latest.indexes.max_timestamp_offset)
    if position is None:
        return None
    header = next(scan_headers(latest.file, position, latest.size))[1]
    found = _first_in(latest, position, header, header.max_timestamp, Offset(0))
    return found if found is not None and start <= found.offset < end else None


def _first_in(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start: Offset
) -> TimestampedOffset | None:
    """The first such record of a batch; there may be millions, so no more are made than needed."""
    epoch = LeaderEpoch(header.leader_epoch)
    data = segment.file.read(position, header.size)
    try:
        for record in iterate_records(data, 0, header):
            if record.timestamp >= timestamp and record.offset >= start:
                return TimestampedOffset(Offset(record.offset), record.timestamp, epoch)
    except HeadraceError:
        # Producers' batches are appended by their headers; one whose records make no sense can
        # still be found as a whole.
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            return TimestampedOffset(Offset(header.last_offset), header.max_timestamp, epoch)
    return None
