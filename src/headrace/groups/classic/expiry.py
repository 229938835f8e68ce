"""What happens to a classic group when time runs out."""

import logging

from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.rebalance import (
    complete_join,
    rebalance_or_complete,
    rebalance_timed_out,
    remove_member,
)
from headrace.groups.result import GroupResult

logger = logging.getLogger(__name__)


def expire(group: ClassicGroup, result: GroupResult) -> None:
    """Drop whoever was silent for too long, and go on with a rebalance that waited enough."""
    now_ms = result.now_ms
    lapsed = [
        member_id
        for member_id, deadline in group.pending_join_members.items()
        if deadline <= now_ms
    ]
    for member_id in lapsed:
        group.remove(member_id)
    silent = [
        member.member_id
        for member in group.members.values()
        if member.deadline_ms is not None
        and member.deadline_ms <= now_ms
        and (member.is_new or not member.is_waiting)
    ]
    for member_id in silent:
        logger.info("member failed: group=%s member=%s", group.group_id, member_id)
        remove_member(group, member_id, result)
    if silent and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance_or_complete(group, result, f"{len(silent)} members were silent for too long")
    elif (
        (silent or lapsed)
        and group.state is State.PREPARING_REBALANCE
        and group.has_all_members_joined()
    ):
        complete_join(group, result)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        rebalance_timed_out(group, result)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        _sync_timed_out(group, result)


def _sync_timed_out(group: ClassicGroup, result: GroupResult) -> None:
    """Members that took the generation and never asked for their share have gone."""
    group.sync_deadline_ms = None
    missing = [each for each in group.pending_sync_members if each in group.members]
    for member_id in missing:
        remove_member(group, member_id, result)
    if missing and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance_or_complete(group, result, f"{len(missing)} members did not sync")
