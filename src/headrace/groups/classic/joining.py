"""JoinGroup: how a member enters a classic group, or comes back to it."""

from copy import copy
from dataclasses import replace

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import Member, Protocols
from headrace.groups.classic.rebalance import (
    heard_of,
    join_refused,
    joined,
    maybe_complete_join,
    prepare,
    rebalance_or_complete,
    refuse_sync,
)
from headrace.groups.records import GroupRecord
from headrace.groups.step import Caller, Step, Token
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first join of a member may stay parked: it has no id to send heartbeats with."""

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


def join(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller, token: Token, step: Step
) -> None:
    """Take a member in; its answer comes when the rebalance is through, or at once."""
    refusal = _join(group, request, caller, token, step)
    if refusal is not None:
        step.answer(token, refusal)


def _join(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller, token: Token, step: Step
) -> JoinGroupResponse | None:
    """The answer, where there is one already."""
    member_id = request.member_id
    protocols: Protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
    if not _has_room(group, member_id, step.settings.max_size):
        group.remove(member_id)
        return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(request.protocol_type, protocols):
        return join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if not member_id:
        if request.group_instance_id in group.instances:
            return _replace_static(group, request, protocols, caller, token, step)
        if request.group_instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            # The member must know its id before it is counted, or every lost answer would
            # leave a ghost behind (KIP-394).
            group.pending[caller.new_member_id] = step.now_ms + request.session_timeout_ms
            return join_refused(ErrorCode.MEMBER_ID_REQUIRED, caller.new_member_id)
        _add(group, request, protocols, caller, caller.new_member_id, token, step)
        return None
    if member_id in group.pending:
        if request.group_instance_id is not None:
            return join_refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        _add(group, request, protocols, caller, member_id, token, step)
        return None
    try:
        group.check_member(member_id, request.group_instance_id)
    except ApiError as error:
        return join_refused(error.code, member_id)
    return _rejoin(group, request, protocols, token, step)


def _has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    match group.state:
        case State.EMPTY | State.DEAD:
            return True
        case State.PREPARING_REBALANCE:
            # Whoever has joined the rebalance may stay; the places are taken as members come.
            member = group.members.get(member_id)
            if member is not None and member.joining is not None:
                return True
            return sum(m.joining is not None for m in group.members.values()) < size_max
        case _:
            return member_id in group.members or len(group.members) < size_max


def _add(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    caller: Caller,
    member_id: str,
    token: Token,
    step: Step,
) -> None:
    member = Member(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        protocols,
        joining=token,
        is_new=True,
        deadline_ms=step.now_ms + NEW_MEMBER_TIMEOUT_MS,
    )
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.member_added = True
    group.add(member, request.protocol_type)
    rebalance_or_complete(group, step, f"member {member_id} joins ({request.reason or 'new'})")


def _rejoin(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    token: Token,
    step: Step,
) -> JoinGroupResponse | None:
    """A known member joins again: mostly because a rebalance is on, else to start one."""
    member = group.members[request.member_id]
    if group.state is State.EMPTY:
        return join_refused(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
    unchanged = member.protocols == protocols
    if group.state is State.COMPLETING_REBALANCE and unchanged:
        return joined(group, member)  # it did not get our first answer
    if group.state is State.STABLE and unchanged and group.leader != member.member_id:
        return joined(group, member)
    # In a stable group the leader may ask for a rebalance without a change of its own:
    # topics may have got more partitions.
    _update(member, request, protocols, token, step)
    reason = request.reason or "its metadata changed"
    rebalance_or_complete(group, step, f"member {member.member_id} joins again ({reason})")
    return None


def _update(
    member: Member, request: JoinGroupRequest, protocols: Protocols, token: Token, step: Step
) -> None:
    member.protocols = protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    if member.joining is not None:
        # It gave up on its first join; nobody reads that answer any more.
        step.answer(member.joining, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.joining = token


def _replace_static(
    group: ClassicGroup,
    request: JoinGroupRequest,
    protocols: Protocols,
    caller: Caller,
    token: Token,
    step: Step,
) -> JoinGroupResponse | None:
    """A static member comes back under a new id: it takes its old place (KIP-345)."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    old_leader = group.leader
    record = _record_with_successor(group, request, protocols, caller.new_member_id)
    if record is not None:
        # Before anything changes: what cannot be written leaves no trace.
        step.write_applied(record)
    member = _take_over(group, instance_id, caller.new_member_id, step)
    _update(member, request, protocols, token, step)
    heard_of(member, step)
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may be computing for the old id.
        prepare(group, step, f"static member {instance_id} came back")
    elif group.state is State.STABLE and record is None:
        rebalance_or_complete(group, step, f"static member {instance_id} changed its protocols")
    elif group.state is State.STABLE:
        member.joining = None
        leads = group.leader == member.member_id
        if caller.api_version >= SKIP_ASSIGNMENT_SINCE:
            return joined(group, member, skip_assignment=leads)
        # An older client that is told it leads would assign anew; it is told its old id leads.
        return joined(group, member, leader=old_leader)
    else:
        maybe_complete_join(group, step)
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


def _take_over(group: ClassicGroup, instance_id: str, new_id: str, step: Step) -> Member:
    """Put the instance under its new id and fence whoever still uses the old one."""
    old_id = group.instances[instance_id]
    member = group.members.pop(old_id)
    token, member.joining = member.joining, None
    if token is not None:
        step.answer(token, join_refused(ErrorCode.FENCED_INSTANCE_ID, old_id))
    refuse_sync(member, step, ErrorCode.FENCED_INSTANCE_ID)
    member.member_id = new_id
    group.members[new_id] = member
    group.instances[instance_id] = new_id
    group.missing_syncs.discard(old_id)
    if group.leader == old_id:
        group.leader = new_id
    return member
