"""Members go: by saying so, by silence, or because they hold others up."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.groups.consumer import records as written
from headrace.groups.consumer.draft import Decision, Draft, GroupContext
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import NOTHING_OWNED, STATIC_LEAVE_EPOCH, ConsumerMember
from headrace.groups.consumer.migration import ClassicGroupState, downgraded
from headrace.groups.consumer.target import refresh_subscriptions
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger(__name__)


def leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: GroupContext
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """A heartbeat that says goodbye; a static member may say that it will be back."""
    member = _leaving_member(group, request)
    draft = Draft(group, context)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # Everything stays its own, so that it finds it again; what it was asked to give up goes.
        away = replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING_OWNED)
        draft.write(written.current_assignment(group.group_id, away))
        return draft.decision(response)
    return draft.decision(response, downgraded=remove_members(draft, [member]))


def expire(group: ConsumerGroup, context: GroupContext) -> Decision[None]:
    """Remove everybody whose time is over."""
    draft = Draft(group, context)
    gone: list[ConsumerMember] = []
    for member_id, kind in group.timers.expired(context.now_ms):
        logger.info(
            "member removed: group=%s member=%s reason=%s", group.group_id, member_id, kind.value
        )
        gone.append(group.members[member_id])
    if not gone:
        return Decision(None)
    return draft.decision(None, downgraded=remove_members(draft, gone))


def remove_members(draft: Draft, gone: Sequence[ConsumerMember]) -> ClassicGroupState | None:
    """Forget members; what they owned is free at once. Says what became of the group.

    The last member of the consumer protocol takes that protocol with it where the policy
    allows: those who are left speak the classic one.
    """
    ids = {member.member_id for member in gone}
    left = [member for member in draft.group.members.values() if member.member_id not in ids]
    if _becomes_classic(draft, gone, left):
        group = draft.group
        records, state = downgraded(
            group, left, topics=draft.context.topics, time_ms=draft.context.time_ms
        )
        draft.write_all(records)
        return state
    for member in gone:
        draft.write(*written.member_tombstones(draft.group.group_id, member.member_id))
    refresh_subscriptions(draft, bump=True)
    return None


def _becomes_classic(
    draft: Draft, gone: Iterable[ConsumerMember], left: Sequence[ConsumerMember]
) -> bool:
    settings = draft.context.settings
    return (
        bool(left)
        and any(not member.uses_classic_protocol for member in gone)
        and all(member.uses_classic_protocol for member in left)
        and settings.migration_policy.may_downgrade
        and len(left) <= settings.classic_max_size
    )


def _leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    if request.instance_id is None:
        return group.member(request.member_id)
    return group.static_member_as(request.instance_id, request.member_id)
