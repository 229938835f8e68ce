"""What is found on disk becomes the state of a log, when it is opened."""

import logging

from headrace.core.ids import Offset
from headrace.log.log_parts import LogParts
from headrace.log.recovery import Opened
from headrace.log.truncation import truncate_fully_and_start_at

logger = logging.getLogger(__name__)


def restore(log: LogParts, opened: Opened, recovery_point: int) -> None:
    """The directory of `log` was there, and `opened` in it, whose segments the log has already."""
    log.is_created = True
    flush = log.flush_state
    flush.directory_found()
    if not opened.segments:
        return
    active = log.segments.active
    # The first append was no later than the last, which is all that is known of the file.
    active.created_ms = min(log.clock.now_ms(), log.files.modified_ms(active.path()))
    log.producer_state.snapshots = tuple(opened.snapshots)
    log.producer_state.states, log.epochs.table = opened.producers, opened.epochs
    first = opened.segments[0].base_offset
    start, end = max(log.log_start_offset, first), active.next_offset
    log.log_start_offset, log.log_end_offset = Offset(start), end
    flush.opened(first, end, recovery_point, opened.reindexed, intact=opened.intact)
    if start > end:
        logger.warning(
            "the log ends below its start and begins anew there: directory=%s end=%d start=%d",
            log.directory,
            end,
            start,
        )
        truncate_fully_and_start_at(log, Offset(start))
