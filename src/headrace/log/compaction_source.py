"""What compaction wants to know of a log that is open."""

from headrace.core.files import FileSystem
from headrace.core.ids import Offset
from headrace.log.compaction.plan import SegmentFacts
from headrace.log.log_parts import LogParts
from headrace.log.segment import Segment


def compactable_offset(log: LogParts, high_watermark: Offset) -> Offset:
    """Up to where compaction may go: recovery takes a hole past the recovery point for lost
    data."""
    return min(high_watermark, log.flush_state.recovery_point)


def active_producers(log: LogParts) -> dict[int, int]:
    """The last offset each known producer wrote; compaction keeps that batch."""
    with log.lock:
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in log.load_producers()
            if producer.batches
        }


def segment_facts(log: LogParts) -> tuple[SegmentFacts, ...]:
    """What a plan must know of each segment, the active one last."""
    facts: list[SegmentFacts] = []
    segments, now_ms = log.segments.all, log.clock.now_ms()
    closed_ms = -1
    for segment in segments:
        before_ms = closed_ms
        is_active = segment is segments[-1]
        closed_ms = now_ms if is_active else _closed_ms(segment, log.files, now_ms)
        facts.append(
            SegmentFacts(
                segment.base_offset,
                segment.next_offset,
                segment.size,
                _begun_ms(segment.created_ms, before_ms, closed_ms),
                closed_ms,
            )
        )
    return tuple(facts)


def _closed_ms(segment: Segment, files: FileSystem, now_ms: int) -> int:
    """When a segment was last appended to, by the clock; asked of the file once."""
    if segment.closed_ms is None:
        # A copied or restored file may claim to be of tomorrow.
        segment.closed_ms = min(now_ms, files.modified_ms(segment.path()))
    return segment.closed_ms


def _begun_ms(created_ms: int, before_ms: int, closed_ms: int) -> int:
    """When a segment got its first record, by the clock.

    Of a segment that an earlier process wrote nobody knows: not before the one before it was
    closed (unless that was rewritten since), not after it was closed itself.
    """
    if created_ms > 0:
        return created_ms
    return closed_ms if before_ms < 0 else min(before_ms, closed_ms)
