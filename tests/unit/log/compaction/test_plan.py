"""When a log is compacted, and how far."""

from __future__ import annotations

from typing import Any

from headrace.log.compaction.plan import CompactionPlan, SegmentFacts, plan_compaction
from headrace.log.config import LogConfig

NOW = 1_000_000
COMPACT = frozenset(("compact",))


def _segments(*times: int) -> list[SegmentFacts]:
    """Segments of ten offsets and 100 bytes, each with its newest timestamp; last one active."""
    return [
        SegmentFacts(10 * index, 10 * index + 10, 100, time - 5, time)
        for index, time in enumerate(times)
    ]


def _plan(
    segments: list[SegmentFacts], first_dirty: int = 0, unstable: int = 10**9, **config: Any
) -> CompactionPlan | None:
    return plan_compaction(
        segments,
        LogConfig(cleanup_policy=config.pop("policy", COMPACT), **config),
        first_dirty_offset=first_dirty,
        first_unstable_offset=unstable,
        now_ms=NOW,
    )


def _bases(plan: CompactionPlan | None) -> list[int]:
    return [] if plan is None else [segment.base_offset for segment in plan.segments]


def test_the_active_segment_is_never_compacted() -> None:
    assert _bases(_plan(_segments(1, 2, 3))) == [0, 10]
    assert _plan(_segments(1)) is None
    assert _plan([]) is None


def test_only_topics_that_compact_are() -> None:
    assert _plan(_segments(1, 2, 3), policy=frozenset(("delete",))) is None
    assert _plan(_segments(1, 2, 3), policy=frozenset(("delete", "compact"))) is not None


def test_the_dirty_part_must_be_more_than_its_ratio() -> None:
    segments = _segments(1, 2, 3, 4, 5)
    half = _plan(segments, first_dirty=20)
    assert half is None, "half is not more than half"
    more = _plan(segments, first_dirty=10)
    assert more is not None
    assert (more.dirty_ratio, _bases(more)) == (0.75, [0, 10, 20, 30])
    assert _plan(segments, first_dirty=30, min_cleanable_dirty_ratio=0.2) is not None


def test_a_clean_log_is_left_alone() -> None:
    assert _plan(_segments(1, 2, 3), first_dirty=20, min_cleanable_dirty_ratio=0.0) is None


def test_what_is_not_stable_is_not_compacted() -> None:
    assert _bases(_plan(_segments(1, 2, 3, 4), unstable=20)) == [0, 10]
    assert _bases(_plan(_segments(1, 2, 3, 4), unstable=19)) == [0]
    assert _plan(_segments(1, 2, 3, 4), unstable=5) is None


def test_records_younger_than_the_lag_wait() -> None:
    segments = _segments(1, NOW - 500, NOW - 2000, NOW)
    assert _bases(_plan(segments, min_compaction_lag_ms=1000)) == [0]
    assert _bases(_plan(segments, min_compaction_lag_ms=100)) == [0, 10, 20]


def test_what_was_compacted_before_is_not_held_back_by_the_lag() -> None:
    segments = _segments(NOW, 5, 6, NOW)
    plan = _plan(segments, first_dirty=10, min_compaction_lag_ms=1000)
    assert _bases(plan) == [0, 10, 20]


def test_an_overdue_log_is_compacted_whatever_the_ratio() -> None:
    segments = _segments(1, 2, 3, NOW - 500, NOW)
    assert _plan(segments, first_dirty=30) is None
    plan = _plan(segments, first_dirty=30, max_compaction_lag_ms=400)
    assert plan is not None
    assert plan.overdue
    assert _plan(segments, first_dirty=30, max_compaction_lag_ms=1000) is None
