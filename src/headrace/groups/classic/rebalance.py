"""From one generation of a classic group to the next."""

import logging

from headrace.core.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import ClassicMember
from headrace.groups.result import GroupResult
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

REBALANCEABLE = (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY)


def rebalance_or_complete(group: ClassicGroup, result: GroupResult, reason: str) -> None:
    """Something changed: begin a rebalance, or see if the one under way is through."""
    if group.state in REBALANCEABLE:
        prepare_rebalance(group, result, reason)
    else:
        maybe_complete_join(group, result)


def prepare_rebalance(group: ClassicGroup, result: GroupResult, reason: str) -> None:
    """Call everybody back: members learn of it from their heartbeats and join again."""
    if group.state is State.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            fail_sync(member, result, ErrorCode.REBALANCE_IN_PROGRESS)
    group.sync_deadline_ms = None
    initial = group.state is State.EMPTY
    group.transition_to(State.PREPARING_REBALANCE, result.time_ms)
    logger.info(
        "rebalance: group=%s generation=%d members=%d reason=%s",
        group.group_id,
        group.generation,
        len(group.members),
        reason,
    )
    if initial:
        # Others are likely about to start too; one rebalance with all of them is cheaper.
        delay_ms = result.settings.initial_rebalance_delay_ms
        group.extension_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        group.member_added = False
        group.join_deadline_ms = result.now_ms + delay_ms
    elif group.has_all_members_joined():
        complete_join(group, result)
    else:
        group.join_deadline_ms = result.now_ms + group.rebalance_timeout_ms()


def maybe_complete_join(group: ClassicGroup, result: GroupResult) -> None:
    """Go on as soon as everybody is there; an initial delay is waited out."""
    if (
        group.state is State.PREPARING_REBALANCE
        and group.previous_state is not State.EMPTY
        and group.has_all_members_joined()
    ):
        complete_join(group, result)


def rebalance_timed_out(group: ClassicGroup, result: GroupResult) -> None:
    """The initial delay or the rebalance timeout has passed."""
    if group.extension_ms and group.member_added:
        group.member_added = False
        delay_ms = min(result.settings.initial_rebalance_delay_ms, group.extension_ms)
        group.extension_ms = max(group.extension_ms - delay_ms, 0)
        group.join_deadline_ms = result.now_ms + delay_ms
        return
    complete_join(group, result)


def complete_join(group: ClassicGroup, result: GroupResult) -> None:
    """Begin the next generation with those who came; static members may be late."""
    group.join_deadline_ms = group.extension_ms = None
    for member in [each for each in group.members.values() if each.join_reply is None]:
        if member.instance_id is None:
            group.remove(member.member_id)
    if group.members and not _elect_leader(group):
        # Only static members, and none of them came: their sessions decide.
        group.join_deadline_ms = result.now_ms + group.rebalance_timeout_ms()
        return
    group.generation += 1
    group.pending_sync_members.clear()
    if not group.members:
        _become_empty(group, result)
        return
    group.protocol = group.select_protocol()
    group.read_subscriptions()
    group.transition_to(State.COMPLETING_REBALANCE, result.time_ms)
    for member in group.members.values():
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            result.reply(reply, join_response(group, member))
        restart_session_timer(member, result)
        member.is_new = False
        group.pending_sync_members.add(member.member_id)
    group.sync_deadline_ms = result.now_ms + group.rebalance_timeout_ms()


def _elect_leader(group: ClassicGroup) -> bool:
    """The leader must be somebody who is here to compute the assignment."""
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join_reply is None:
        present = (m.member_id for m in group.members.values() if m.join_reply is not None)
        group.leader = next(present, group.leader)
        leader = group.members.get(group.leader or "")
    return leader is not None and leader.join_reply is not None


def _become_empty(group: ClassicGroup, result: GroupResult) -> None:
    group.protocol = None
    group.read_subscriptions()
    group.transition_to(State.EMPTY, result.time_ms)
    logger.info("group is empty: group=%s generation=%d", group.group_id, group.generation)
    result.append(group.record())


def remove_member(group: ClassicGroup, member_id: str, result: GroupResult) -> None:
    """Take a member out; whoever still waits for its answers is told to come in anew."""
    member = group.members[member_id]
    reply, member.join_reply = member.join_reply, None
    if reply is not None:
        result.reply(reply, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
    fail_sync(member, result, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member_id)


def restart_session_timer(member: ClassicMember, result: GroupResult) -> None:
    """A sign of life: a whole session from now on."""
    member.deadline_ms = result.now_ms + member.session_timeout_ms


def fail_sync(member: ClassicMember, result: GroupResult, code: ErrorCode) -> None:
    reply, member.sync_reply = member.sync_reply, None
    if reply is not None:
        restart_session_timer(member, result)
        result.reply(reply, SyncGroupResponse(error_code=code, assignment=b""))


def join_response(
    group: ClassicGroup,
    member: ClassicMember,
    *,
    skip_assignment: bool = False,
    leader: str | None = None,
) -> JoinGroupResponse:
    """The answer to a join: the generation, and for the leader the members to assign to."""
    leads = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(group.protocol),
            )
            for each in group.members.values()
        ]
        if leads and leader is None
        else [],
    )


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=[],
    )
