"""Where a group's offsets would go: every kind of reset comes down to one offset per partition.

Nothing is changed here; what comes out can be shown first and then given to `alter_offsets`.
"""

from collections.abc import Mapping

from headrace.client.core.group_models import CommittedOffset, OffsetMove, ShiftBy
from headrace.client.core.lookups import list_offsets
from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec
from headrace.client.core.offset_operations import fetch_offsets
from headrace.client.core.operations import ClientOperation, Session
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition

Target = int | OffsetSpec | ShiftBy


def plan_offsets(
    session: Session, group: str, wanted: Mapping[TopicPartition, Target]
) -> ClientOperation[list[OffsetMove]]:
    """From where to where each offset would move, kept within what the log still has."""
    if not wanted:
        return []
    committed = yield from fetch_offsets(session, group, list(wanted))
    starts = yield from list_offsets(session, dict.fromkeys(wanted, EARLIEST))
    ends = yield from list_offsets(session, dict.fromkeys(wanted, LATEST))
    specs = {where: each for where, each in wanted.items() if isinstance(each, OffsetSpec)}
    found = (yield from list_offsets(session, specs)) if specs else {}
    moves = []
    for where in sorted(wanted):
        target, place = wanted[where], committed.get(where)
        start, end = starts[where].offset, ends[where].offset
        if isinstance(target, OffsetSpec):
            # No record is as late as that: the end is.
            after = found[where].offset if found[where].offset >= 0 else end
        elif isinstance(target, ShiftBy):
            after = _base(group, where, place) + target.records
        else:
            after = target
        moves.append(
            OffsetMove(
                partition=where,
                before=None if place is None else place.offset,
                after=min(max(after, start), end),
                start=start,
                end=end,
            )
        )
    return moves


def _base(group: str, where: TopicPartition, place: CommittedOffset | None) -> int:
    if place is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"group {group!r} has no offset for {where}, so there is nothing to shift",
            hint="reset that partition to the earliest or latest offset first",
        )
    return place.offset
