"""From one generation of a classic group to the next."""

import logging

from headrace.core.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import Member
from headrace.groups.step import Step
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

REBALANCEABLE = (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY)


def rebalance_or_complete(group: ClassicGroup, step: Step, reason: str) -> None:
    """Something changed: begin a rebalance, or see if the one under way is through."""
    if group.state in REBALANCEABLE:
        prepare(group, step, reason)
    else:
        maybe_complete_join(group, step)


def prepare(group: ClassicGroup, step: Step, reason: str) -> None:
    """Call everybody back: members learn of it from their heartbeats and join again."""
    if group.state is State.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            refuse_sync(member, step, ErrorCode.REBALANCE_IN_PROGRESS)
    group.sync_deadline_ms = None
    initial = group.state is State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, step.time_ms)
    logger.info(
        "rebalance: group=%s generation=%d members=%d reason=%s",
        group.group_id,
        group.generation,
        len(group.members),
        reason,
    )
    if initial:
        # Others are likely about to start too; one rebalance with all of them is cheaper.
        delay_ms = step.settings.initial_rebalance_delay_ms
        group.extension_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        group.member_added = False
        group.join_deadline_ms = step.now_ms + delay_ms
    elif group.everybody_joined():
        complete_join(group, step)
    else:
        group.join_deadline_ms = step.now_ms + group.rebalance_timeout_ms()


def maybe_complete_join(group: ClassicGroup, step: Step) -> None:
    """Go on as soon as everybody is there; an initial delay is waited out."""
    if (
        group.state is State.PREPARING_REBALANCE
        and group.previous_state is not State.EMPTY
        and group.everybody_joined()
    ):
        complete_join(group, step)


def join_time_is_up(group: ClassicGroup, step: Step) -> None:
    """The initial delay or the rebalance timeout has passed."""
    if group.extension_ms and group.member_added:
        group.member_added = False
        delay_ms = min(step.settings.initial_rebalance_delay_ms, group.extension_ms)
        group.extension_ms = max(group.extension_ms - delay_ms, 0)
        group.join_deadline_ms = step.now_ms + delay_ms
        return
    complete_join(group, step)


def complete_join(group: ClassicGroup, step: Step) -> None:
    """Begin the next generation with those who came; static members may be late."""
    group.join_deadline_ms = group.extension_ms = None
    for member in [each for each in group.members.values() if each.joining is None]:
        if member.instance_id is None:
            group.remove(member.member_id)
    if group.members and not _elect_leader(group):
        # Only static members, and none of them came: their sessions decide.
        group.join_deadline_ms = step.now_ms + group.rebalance_timeout_ms()
        return
    group.generation += 1
    group.missing_syncs.clear()
    if not group.members:
        _become_empty(group, step)
        return
    group.protocol = group.select_protocol()
    group.read_subscriptions()
    group.move_to(State.COMPLETING_REBALANCE, step.time_ms)
    for member in group.members.values():
        token, member.joining = member.joining, None
        if token is not None:
            step.answer(token, joined(group, member))
        heard_of(member, step)
        member.is_new = False
        group.missing_syncs.add(member.member_id)
    group.sync_deadline_ms = step.now_ms + group.rebalance_timeout_ms()


def _elect_leader(group: ClassicGroup) -> bool:
    """The leader must be somebody who is here to compute the assignment."""
    leader = group.members.get(group.leader or "")
    if leader is None or leader.joining is None:
        present = (m.member_id for m in group.members.values() if m.joining is not None)
        group.leader = next(present, group.leader)
        leader = group.members.get(group.leader or "")
    return leader is not None and leader.joining is not None


def _become_empty(group: ClassicGroup, step: Step) -> None:
    group.protocol = None
    group.read_subscriptions()
    group.move_to(State.EMPTY, step.time_ms)
    logger.info("group is empty: group=%s generation=%d", group.group_id, group.generation)
    step.write_applied(group.record())


def remove_member(group: ClassicGroup, member_id: str, step: Step) -> None:
    """Take a member out; whoever still waits for its answers is told to come in anew."""
    member = group.members[member_id]
    token, member.joining = member.joining, None
    if token is not None:
        step.answer(token, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    refuse_sync(member, step, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member_id)


def heard_of(member: Member, step: Step) -> None:
    """A sign of life: a whole session from now on."""
    member.deadline_ms = step.now_ms + member.session_timeout_ms


def refuse_sync(member: Member, step: Step, code: ErrorCode) -> None:
    token, member.syncing = member.syncing, None
    if token is not None:
        heard_of(member, step)
        step.answer(token, SyncGroupResponse(error_code=code, assignment=b""))


def joined(
    group: ClassicGroup, member: Member, *, skip_assignment: bool = False, leader: str | None = None
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


def join_refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=[],
    )
