"""Write batches at the end of a log, whose offsets they have been given: files and segments.

Whoever calls holds the log's lock; only `roll` and `roll_if_due` take it.
"""

from headrace.core.errors import ApiError, ErrorCode, StorageError, StorageUnavailable
from headrace.core.files import NotTried
from headrace.core.ids import Offset
from headrace.log import partition_metadata
from headrace.log.log_parts import LogParts
from headrace.log.names import LOG, offset_name
from headrace.log.producer_state import ProducerStates
from headrace.log.rolling import clock_due, roll_due, roll_limit_ms
from headrace.log.segment import Segment
from headrace.protocol.records.header import LENGTH_OVERHEAD, BatchHeader

# Position in the buffer, header as it came, last offset as it will be.
Placed = list[tuple[int, BatchHeader, int]]


def write(log: LogParts, placed: Placed, buffer: memoryview, producers: ProducerStates) -> None:
    """One write for all; one for each only where they do not fit one segment."""
    size = len(buffer)
    config = log.config
    last = placed[-1][2]
    if size > config.segment_bytes:
        _write_apart(log, placed, buffer, producers)
        return
    segment = log.segments.active
    try:
        if segment.size == 0 or _roll_due(log, segment, size, last, placed):
            segment = _segment_to_write(log, segment, last)
        start = segment.file.append((buffer,))
    except OSError as error:
        raise _write_failed(log, segment, error) from error
    interval = config.index_interval_bytes
    for position, header, last_offset in placed:
        segment.add_batch(
            start + position,
            header.batch_length + LENGTH_OVERHEAD,
            last_offset,
            header.max_timestamp,
            interval,
        )
        if header.producer_id >= 0:
            producers.update(header, last_offset)
    log.flush_state.bytes_since_checkpoint += size
    log.log_end_offset = Offset(last + 1)


def _roll_due(log: LogParts, segment: Segment, size: int, last: int, placed: Placed) -> bool:
    newest = placed[0][1].max_timestamp
    if len(placed) > 1:
        newest = max(header.max_timestamp for _, header, _ in placed)
    return roll_due(segment, size, last, newest, log.clock, log.config, log.roll_limit_ms)


def _write_apart(
    log: LogParts, placed: Placed, buffer: memoryview, producers: ProducerStates
) -> None:
    if len(placed) == 1:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(buffer)} bytes do not fit a segment of {log.config.segment_bytes}",
        )
    for position, header, last in placed:
        write(log, [(0, header, last)], buffer[position : position + header.size], producers)


def _segment_to_write(log: LogParts, segment: Segment, last_offset: int) -> Segment:
    """Make sure there are files to write to: the first of this log, or a new segment's."""
    if not log.is_created:
        log.files.make_directory(log.directory)
        if log.topic_id is not None:
            partition_metadata.store(log.files, log.directory, log.topic_id)
        log.is_created = True
        log.flush_state.directory_created()
    if segment.size == 0 and last_offset - segment.base_offset < 2**31:
        if not segment.data.exists:
            # First, since the name may be there whatever comes of the rest.
            log.flush_state.names_changed()
            segment.create_file(_reserve_bytes(log))
        segment.created_ms = log.clock.now_ms()
        return segment
    return begin_segment(log)


def _write_failed(log: LogParts, segment: Segment, error: OSError) -> StorageError:
    """A failed write leaves the file as it was; if it does not, the log is done for."""
    if isinstance(error, NotTried):
        return StorageUnavailable(f"cannot write to {segment.path()} now: {error}")
    failure = StorageError(f"cannot write to {segment.path()}: {error}")
    try:
        if segment.data.exists and segment.file.size() != segment.size:
            log.flush_state.fail(failure)
    except OSError:
        log.flush_state.fail(failure)
    return failure


def roll_if_due(log: LogParts, now_ms: int) -> bool:
    """Roll a segment that has data and spans its time by the clock, written to or not."""
    with log.lock:
        active = log.segments.active
        due = active.size > 0 and clock_due(active, now_ms, log.roll_limit_ms)
        if due and log.flush_state.failure is None:
            _roll(log)
    return due


def roll(log: LogParts) -> None:
    """Begin a new segment, so that all there is so far can be deleted as a whole."""
    with log.lock:
        log.flush_state.raise_if_failed()
        if log.segments.active.size > 0:
            _roll(log)


def _roll(log: LogParts) -> None:
    try:
        begin_segment(log)
    except OSError as error:
        raise StorageError(f"cannot roll {log.directory}: {error}") from error


def begin_segment(log: LogParts) -> Segment:
    """Begin a new segment at the log's end; its name is synced by the next flush.

    For those who hold `lock`.
    """
    old, base_offset = log.segments.active, log.log_end_offset
    log.flush_state.names_changed()
    try:
        segment = log.segments.roll(base_offset, log.clock.now_ms(), _reserve_bytes(log))
    except OSError as error:
        if log.files.exists(f"{log.directory}/{offset_name(base_offset, LOG)}"):
            # At a restart that name would end the old segment, whatever is in it by then.
            log.flush_state.fail(StorageError(f"cannot roll {log.directory}: {error}"))
        raise
    old.closed_ms = segment.created_ms
    log.roll_limit_ms = roll_limit_ms(log.config, segment)
    log.flush_state.segment_closed(old)
    if log.config.preallocate:
        old.data.release_space()
    # A later truncation goes back to this state instead of the log's beginning.
    log.producer_state.take_snapshot(log.log_end_offset)
    return segment


def _reserve_bytes(log: LogParts) -> int:
    return log.config.segment_bytes if log.config.preallocate else 0
