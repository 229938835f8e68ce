"""SyncGroup and Heartbeat: members get their shares and show that they are alive."""

import logging

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import Member
from headrace.groups.classic.rebalance import heard_of, prepare, refuse_sync
from headrace.groups.step import Step, Token
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)


def sync(group: ClassicGroup, request: SyncGroupRequest, token: Token, step: Step) -> None:
    """Park the member until the leader has assigned; the leader's own sync sets them all free."""
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is State.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    group.missing_syncs.discard(member.member_id)
    if not group.missing_syncs:
        group.sync_deadline_ms = None
    if group.state is State.STABLE:
        heard_of(member, step)
        step.answer(token, _share(group, member))
        return
    if member.syncing is not None:
        step.answer(member.syncing, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    member.syncing = token
    if group.leader == member.member_id:
        _assign(
            group, {each.member_id: bytes(each.assignment) for each in request.assignments}, step
        )


def _assign(group: ClassicGroup, shares: dict[str, bytes], step: Step) -> None:
    """The generation is complete: written down first, then told to whoever waits."""
    try:
        step.write_applied(group.record(shares, step.time_ms))
    except HeadraceError as error:
        # The leader is told; all others join again, since nobody knows what it will do next.
        logger.error("assignment not written: group=%s error=%s", group.group_id, error)
        refuse_sync(group.members[group.leader or ""], step, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare(group, step, "its assignment could not be written")
        return
    for member in group.members.values():
        member.assignment = shares.get(member.member_id, b"")
    group.move_to(State.STABLE, step.time_ms)
    for member in group.members.values():
        token, member.syncing = member.syncing, None
        if token is not None:
            heard_of(member, step)
            step.answer(token, _share(group, member))


def _share(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def _differs(asked: str | None, ours: str | None) -> bool:
    return asked is not None and ours is not None and asked != ours


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, step: Step) -> None:
    """Extend the member's session; raises what it has to do instead of going on."""
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is State.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    heard_of(group.members[request.member_id], step)
    if group.state is State.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)


def committed(group: ClassicGroup, member_id: str, step: Step) -> None:
    """A commit is a sign of life too."""
    member = group.members.get(member_id)
    if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        heard_of(member, step)
