"""Whether a log is worth compacting now, and up to which offset it may be.

    log start ──── clean ──── first dirty ──── dirty ──── first uncleanable ──── active, end

Uncleanable are the active segment, what is not yet stable (high watermark, open transactions),
and, counted from the first segment that is too young, everything within `min.compaction.lag.ms`.

Ages are by the broker's clock, from when records were appended: a lag is time spent in the log,
and records replayed from 1970 or stamped 2100 have spent as much of it there as any.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.log.config import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the plan must know of a segment."""

    base_offset: int
    next_offset: int
    size: int
    begun_ms: int
    """When it was first appended to, by the clock."""
    closed_ms: int
    """When it was last appended to."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The segments to compact, oldest first, and how pressing it is."""

    segments: tuple[SegmentFacts, ...]
    dirty_ratio: float
    overdue: bool
    """Something has waited longer than `max.compaction.lag.ms`: before any other log."""


def plan_compaction(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    first_unstable_offset: int,
    now_ms: int,
) -> CompactionPlan | None:
    """What to compact, or None. `segments` are all of the log's, the active one last."""
    if "compact" not in config.cleanup_policy:
        return None
    candidates: list[SegmentFacts] = []
    for segment in segments[:-1]:
        too_young = (
            config.min_compaction_lag_ms > 0
            and segment.next_offset > first_dirty_offset
            and segment.closed_ms > now_ms - config.min_compaction_lag_ms
        )
        if segment.next_offset > first_unstable_offset or too_young:
            break
        candidates.append(segment)
    dirty = [segment for segment in candidates if segment.next_offset > first_dirty_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / sum(segment.size for segment in candidates)
    overdue = dirty[0].begun_ms < now_ms - config.max_compaction_lag_ms
    if not overdue and ratio <= config.min_cleanable_dirty_ratio:
        return None
    return CompactionPlan(tuple(candidates), ratio, overdue)
