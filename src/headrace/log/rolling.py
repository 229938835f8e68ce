"""When a segment is full: by size, by time, by its indexes, or by the reach of an offset."""

from zlib import crc32

from headrace.core.runtime import Clock
from headrace.log.config import MAX_INT32, LogConfig
from headrace.log.segment import Segment
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY


def roll_limit_ms(config: LogConfig, segment: Segment) -> int:
    """How much time one segment may span.

    A compacted topic with `max.compaction.lag.ms` must roll that often, or its newest records
    would never become cleanable. The jitter keeps partitions created together from rolling
    together; it is drawn from the segment's name, so that a run can be repeated exactly.
    """
    limit = config.segment_ms
    if "compact" in config.cleanup_policy and 0 < config.max_compaction_lag_ms < limit:
        limit = config.max_compaction_lag_ms
    jitter = min(config.segment_jitter_ms, limit)
    return limit - crc32(segment.path().encode()) % jitter if jitter > 0 else limit


def roll_due(
    segment: Segment,
    size: int,
    last_offset: int,
    timestamp: int,
    clock: Clock,
    config: LogConfig,
    limit_ms: int,
) -> bool:
    """Whether `size` bytes up to `last_offset` must go to a new segment."""
    if last_offset - segment.base_offset > MAX_INT32:
        return True
    if segment.size == 0:
        return False
    return (
        segment.size + size > config.segment_bytes
        or time_due(segment, timestamp, clock, limit_ms)
        or indexes_full(segment, config)
    )


def time_due(segment: Segment, timestamp: int, clock: Clock, limit_ms: int) -> bool:
    """For an append. Record time counts where there is one, so that replayed data rolls as it did
    at first; it is compared with record time only, never with the clock."""
    first = segment.load_first_timestamp()
    if first < 0:
        return clock_due(segment, clock.now_ms(), limit_ms)
    return timestamp - first > limit_ms


def clock_due(segment: Segment, now_ms: int, limit_ms: int) -> bool:
    """For a look without an append: whatever the records say, the first one came so long ago."""
    return now_ms - segment.created_ms > limit_ms


def indexes_full(segment: Segment, config: LogConfig) -> bool:
    """Whether the next batch would need an index entry for which there is no space."""
    if not segment.indexes.entry_due(config.index_interval_bytes):
        return False
    # The time index keeps one place free for the entry it gets when the segment is closed.
    return (
        len(segment.indexes.time_index) >= config.segment_index_bytes // TIME_ENTRY.size - 1
        or len(segment.indexes.offset_index) >= config.segment_index_bytes // OFFSET_ENTRY.size
    )
