"""Which segments of a log may be deleted: the oldest ones, while one of three reasons holds.

    log start    every offset lies below the log start offset (delete-records)
    size         the log would still have `retention.bytes` without the segment
    time         the newest record in the segment is older than `retention.ms`

Only whole segments go, only from the old end, and only below the high watermark. Size and time
count for topics that delete; one that only compacts keeps the newest value of a key forever.

Deleting may run in a worker, beside appends and reads: the log's lock is held for single steps and
never across a sync.
"""

from collections.abc import Sequence
from errno import ENOSPC
from itertools import pairwise, takewhile

from headrace.core.errors import StorageError
from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.log_parts import LogParts, removal_due_ms
from headrace.log.log_writer import begin_segment
from headrace.log.replacement import finish_half_replaced
from headrace.log.segment import Segment


def expired_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    log_start: Offset,
    high_watermark: Offset,
) -> list[tuple[Segment, str]]:
    """The segments to delete with their reasons, oldest first; maybe all of them."""
    deletes = "delete" in config.cleanup_policy
    by_size = deletes and config.retention_bytes >= 0
    by_time = deletes and config.retention_ms >= 0
    surplus = sum(s.size for s in segments) - config.retention_bytes if by_size else 0
    expired: list[tuple[Segment, str]] = []
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        end = segment.next_offset if last else segments[number + 1].base_offset
        if end > high_watermark or (last and segment.size == 0):
            break
        if not last and end <= log_start:
            reason = f"below the log start offset {log_start}"
        elif by_size and surplus - segment.size >= 0:
            reason = f"retention.bytes={config.retention_bytes} reached without it"
        elif by_time and now_ms - _newest_ms(segment) > config.retention_ms:
            reason = f"older than retention.ms={config.retention_ms}"
        else:
            break
        surplus -= segment.size
        expired.append((segment, reason))
    return expired


def _newest_ms(segment: Segment) -> int:
    """When the newest record was made; when the file last changed if no record says so."""
    newest = segment.indexes.max_timestamp
    return newest if newest >= 0 else segment.data.files.modified_ms(segment.path())


def apply_retention(log: LogParts, now_ms: int, high_watermark: Offset) -> list[tuple[str, str]]:
    """Delete what may go; return path and reason of each segment deleted."""
    with log.structure_lock:
        finish_half_replaced(log)
        return _delete(log, now_ms, high_watermark)


def _delete(log: LogParts, now_ms: int, high_watermark: Offset) -> list[tuple[str, str]]:
    try:
        with log.lock:
            # Here, since it may have to make anew an index that appends add to.
            _ = log.segments.active.indexes.max_timestamp
            segments = log.segments.all
            ends = {segment: segment.next_offset for segment in segments}
        expired = expired_segments(
            segments,
            log.config,
            now_ms=now_ms,
            log_start=log.log_start_offset,
            high_watermark=high_watermark,
        )
        deleted = _delete_oldest(log, [(segment, ends[segment]) for segment, _ in expired])
    except OSError as error:
        raise StorageError(f"cannot delete from {log.directory}: {error}") from error
    return [(segment.path(), reason) for segment, reason in expired[:deleted]]


def _delete_oldest(log: LogParts, expired: list[tuple[Segment, Offset]]) -> int:
    """Delete the segments that still end where they did when they were judged."""
    with log.lock:
        unchanged = takewhile(lambda judged: judged[0].next_offset == judged[1], expired)
        segments = [segment for segment, _ in unchanged]
        if not segments:
            return 0
        log.flush_state.raise_if_failed()
        segments = _prepare_deletion(log, segments)
    # Producers whose batches go now are known only from the snapshot, and the log's end
    # perhaps only from the name of a new, still empty segment: both must outlast the rest.
    log.producer_state.sync_newest()
    log.files.sync_directory(log.directory)
    for segment in segments:
        with log.lock:
            log.flush_state.raise_if_failed()
            # First, so that a reader who no longer finds a segment knows why.
            following = log.segments.all[1].base_offset
            log.log_start_offset = max(log.log_start_offset, following)
            log.segments.drop([segment], removal_due_ms(log))
        # One by one, since a directory promises no order: were an older segment to come back
        # without its successor, recovery would find a hole and end the log there.
        log.files.sync_directory(log.directory)
    with log.lock:
        log.producer_state.delete_snapshots_before(following)
        log.flush_state.deleted_before(following)
        log.load_epochs().truncate_start(log.log_start_offset)
    return len(segments)


def _prepare_deletion(log: LogParts, segments: list[Segment]) -> list[Segment]:
    """Make sure that what must outlast the oldest segments is written; those that may go now.

    A full disk may have no space for that, and must be able to get some: then those go first
    whose producers an earlier snapshot knows.
    """
    producers = log.producer_state
    log.load_producers()
    try:
        if len(segments) == len(log.segments):
            begin_segment(log)
        if not producers.covers(log.segments.all[len(segments)].base_offset):
            producers.take_snapshot(log.log_end_offset)
        return segments
    except OSError as error:
        known = [
            segment
            for segment, following in pairwise(log.segments.all)
            if segment in segments and producers.covers(following.base_offset)
        ]
        if error.errno != ENOSPC or not known:
            raise
        return known


def remove_deleted(log: LogParts, now_ms: float | None = None) -> int:
    """Remove the files of segments deleted long enough ago, by the monotonic clock (of all,
    without a time); return how many segments. What cannot be removed is tried again the next
    time."""
    with log.lock:
        pending = log.segments.take_due(now_ms)
    removed = 0
    try:
        # Outside the lock: appends need not wait until a large file is gone.
        for each in pending:
            each.remove()
            removed += 1
    finally:
        with log.lock:
            log.segments.put_back(pending[removed:])
    return removed
