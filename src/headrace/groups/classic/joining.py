"""JoinGroup: how a member enters a classic group, or comes back to it."""

from copy import copy
from dataclasses import replace

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import ClassicMember, Protocols
from headrace.groups.classic.rebalance import (
    fail_sync,
    join_error,
    join_response,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_complete,
    restart_session_timer,
)
from headrace.groups.records import GroupRecord
from headrace.groups.result import ClientInfo, GroupResult
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first join of a member may stay parked: it has no id to send heartbeats with."""

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


def join(
    group: ClassicGroup,
    request: JoinGroupRequest,
    client: ClientInfo,
    reply: Reply,
    result: GroupResult,
) -> None:
    """Take a member in; its answer comes when the rebalance is through, or at once."""
    response = _join(group, request, client, reply, result)
    if response is not None:
        result.reply(reply, response)


def _join(
    group: ClassicGroup,
    request: JoinGroupRequest,
    client: ClientInfo,
    reply: Reply,
    result: GroupResult,
) -> JoinGroupResponse | None:
    """The answer, where there is one already."""
    member_id = request.member_id
    protocols: Protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
    if not _accepts_member(group, member_id, result.settings.max_size):
        group.remove(member_id)
        return join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, protocols):
        return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if not member_id:
        if request.group_instance_id in group.instances:
            return _replace_static(group, request, protocols, client, reply, result)
        if request.group_instance_id is None and client.api_version >= MEMBER_ID_REQUIRED_SINCE:
            # The member must know its id before it is counted, or every lost answer would
            # leave a ghost behind (KIP-394).
            group.pending_join_members[client.new_member_id] = (
                result.now_ms + request.session_timeout_ms
            )
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, client.new_member_id)
        _add(group, request, protocols, client, client.new_member_id, reply, result)
        return None
    if member_id in group.pending_join_members:
        if request.group_instance_id is not None:
            return join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        _add(group, request, protocols, client, member_id, reply, result)
        return None
    try:
        group.check_member(member_id, request.group_instance_id)
    except ApiError as error:
        return join_error(error.code, member_id)
    return _rejoin(group, request, protocols, reply, result)


def _accepts_member(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    match group.state:
        case State.EMPTY | State.DEAD:
            return True
        case State.PREPARING_REBALANCE:
            # Whoever has joined the rebalance may stay; the places are taken as members come.
            member = group.members.get(member_id)
            if member is not None and member.join_reply is not None:
                return True
            return sum(m.join_reply is not None for m in group.members.values()) < size_max
        case _:
            return member_id in group.members or len(group.members) < size_max


def _add(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: ClientInfo,
    member_id: str,
    reply: Reply,
    result: GroupResult,
) -> None:
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        protocols,
        join_reply=reply,
        is_new=True,
        deadline_ms=result.now_ms + NEW_MEMBER_TIMEOUT_MS,
    )
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.member_added = True
    group.add(member, request.protocol_type)
    rebalance_or_complete(group, result, f"member {member_id} joins ({request.reason or 'new'})")


def _rejoin(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    reply: Reply,
    result: GroupResult,
) -> JoinGroupResponse | None:
    """A known member joins again: mostly because a rebalance is on, else to start one."""
    member = group.members[request.member_id]
    if group.state is State.EMPTY:
        return join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
    unchanged = member.protocols == protocols
    if group.state is State.COMPLETING_REBALANCE and unchanged:
        return join_response(group, member)  # it did not get our first answer
    if group.state is State.STABLE and unchanged and group.leader != member.member_id:
        return join_response(group, member)
    # In a stable group the leader may ask for a rebalance without a change of its own:
    # topics may have got more partitions.
    _update(member, request, protocols, reply, result)
    reason = request.reason or "its metadata changed"
    rebalance_or_complete(group, result, f"member {member.member_id} joins again ({reason})")
    return None


def _update(
    member: ClassicMember,
    request: JoinGroupRequest,
    protocols: Protocols,
    reply: Reply,
    result: GroupResult,
) -> None:
    member.protocols = protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    if member.join_reply is not None:
        # It gave up on its first join; nobody reads that answer any more.
        result.reply(
            member.join_reply, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        )
    member.join_reply = reply


def _replace_static(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    client: ClientInfo,
    reply: Reply,
    result: GroupResult,
) -> JoinGroupResponse | None:
    """A static member comes back under a new id: it takes its old place (KIP-345)."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    old_leader = group.leader
    record = _record_with_successor(group, request, protocols, client.new_member_id)
    if record is not None:
        # Before anything changes: what cannot be written leaves no trace.
        result.append(record)
    member = _replace_member_id(group, instance_id, client.new_member_id, result)
    _update(member, request, protocols, reply, result)
    restart_session_timer(member, result)
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may be computing for the old id.
        prepare_rebalance(group, result, f"static member {instance_id} came back")
    elif group.state is State.STABLE and record is None:
        rebalance_or_complete(group, result, f"static member {instance_id} changed its protocols")
    elif group.state is State.STABLE:
        member.join_reply = None
        leads = group.leader == member.member_id
        if client.api_version >= SKIP_ASSIGNMENT_SINCE:
            return join_response(group, member, skip_assignment=leads)
        # An older client that is told it leads would assign anew; it is told its old id leads.
        return join_response(group, member, leader=old_leader)
    else:
        maybe_complete_join(group, result)
    return None


def _record_with_successor(
    group: ClassicGroup, request: JoinGroupRequest, protocols: Protocols, new_id: str
) -> GroupRecord | None:
    """The stable group as it will be, if it goes on with the same protocol."""
    if group.state is not State.STABLE:
        return None
    old_id = group.instances[request.group_instance_id or ""]
    successor = replace(
        group.members[old_id],
        member_id=new_id,
        protocols=protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    changed = copy(group)
    changed.members = {key: each for key, each in group.members.items() if key != old_id}
    changed.members[new_id] = successor
    if group.leader == old_id:
        changed.leader = new_id
    return changed.record() if changed.select_protocol() == group.protocol else None


def _replace_member_id(
    group: ClassicGroup, instance_id: str, new_id: str, result: GroupResult
) -> ClassicMember:
    """Put the instance under its new id and fence whoever still uses the old one."""
    old_id = group.instances[instance_id]
    member = group.members.pop(old_id)
    reply, member.join_reply = member.join_reply, None
    if reply is not None:
        result.reply(reply, join_error(ErrorCode.FENCED_INSTANCE_ID, old_id))
    fail_sync(member, result, ErrorCode.FENCED_INSTANCE_ID)
    member.member_id = new_id
    group.members[new_id] = member
    group.instances[instance_id] = new_id
    group.pending_sync_members.discard(old_id)
    if group.leader == old_id:
        group.leader = new_id
    return member
