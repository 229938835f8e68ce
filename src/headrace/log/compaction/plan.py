"""Whether a log is worth compacting now, and up to which offset it may be.

    log start ──── clean ──── first dirty ──── dirty ──── first uncleanable ──── active, end

Uncleanable are the active segment, what is not yet stable (high watermark, open transactions),
and, counted from the first segment that is too young, everything within `min.compaction.lag.ms`.
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
    first_timestamp: int
    max_timestamp: int


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
            and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        )
        if segment.next_offset > first_unstable_offset or too_young:
            break
        candidates.append(segment)
    dirty = [segment for segment in candidates if segment.next_offset > first_dirty_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / sum(segment.size for segment in candidates)
    overdue = _oldest_ms(dirty) < now_ms - config.max_compaction_lag_ms
    if not overdue and ratio <= config.min_cleanable_dirty_ratio:
        return None
    return CompactionPlan(tuple(candidates), ratio, overdue)


def _oldest_ms(dirty: Sequence[SegmentFacts]) -> int:
    """When the first dirty record was written, as far as segments tell."""
    known = [segment.first_timestamp for segment in dirty if segment.first_timestamp >= 0]
    return min(known) if known else 2**63 - 1
