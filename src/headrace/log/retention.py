"""Which segments of a log may be deleted: the oldest ones, while one of three reasons holds.

    log start    every offset lies below the log start offset (delete-records)
    size         the log would still have `retention.bytes` without the segment
    time         the newest record in the segment is older than `retention.ms`

Only whole segments go, only from the old end, and only below the high watermark. Size and time
count for topics that delete; one that only compacts keeps the newest value of a key forever.
"""

from collections.abc import Sequence

from headrace.core.ids import Offset
from headrace.log.config import LogConfig
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
