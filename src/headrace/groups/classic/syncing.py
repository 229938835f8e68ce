"""SyncGroup and Heartbeat: members get their shares and show that they are alive."""

import logging

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import ClassicMember
from headrace.groups.classic.rebalance import fail_sync, prepare_rebalance, restart_session_timer
from headrace.groups.result import GroupResult
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)


def sync(group: ClassicGroup, request: SyncGroupRequest, reply: Reply, result: GroupResult) -> None:
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
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        group.sync_deadline_ms = None
    if group.state is State.STABLE:
        restart_session_timer(member, result)
        result.reply(reply, _sync_response(group, member))
        return
    if member.sync_reply is not None:
        result.reply(member.sync_reply, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_reply = reply
    if group.leader == member.member_id:
        _assign(
            group, {each.member_id: bytes(each.assignment) for each in request.assignments}, result
        )


def _assign(group: ClassicGroup, assignments: dict[str, bytes], result: GroupResult) -> None:
    """The generation is complete: written down first, then told to whoever waits."""
    try:
        result.append(group.record(assignments, result.time_ms))
    except HeadraceError as error:
        # The leader is told; all others join again, since nobody knows what it will do next.
        logger.error("assignment not written: group=%s error=%s", group.group_id, error)
        fail_sync(group.members[group.leader or ""], result, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare_rebalance(group, result, "its assignment could not be written")
        return
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.transition_to(State.STABLE, result.time_ms)
    for member in group.members.values():
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            restart_session_timer(member, result)
            result.reply(reply, _sync_response(group, member))


def _sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def _differs(asked: str | None, ours: str | None) -> bool:
    return asked is not None and ours is not None and asked != ours


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, result: GroupResult) -> None:
    """Extend the member's session; raises what it has to do instead of going on."""
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is State.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    restart_session_timer(group.members[request.member_id], result)
    if group.state is State.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)


def offsets_committed(group: ClassicGroup, member_id: str, result: GroupResult) -> None:
    """A commit is a sign of life too."""
    member = group.members.get(member_id)
    if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        restart_session_timer(member, result)
