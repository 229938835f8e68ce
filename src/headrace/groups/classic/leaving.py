"""LeaveGroup: members go, by themselves or because an operator removes them."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.rebalance import (
    maybe_complete_join,
    rebalance_or_complete,
    remove_member,
)
from headrace.groups.result import GroupResult
from headrace.protocol.messages.leave_group import MemberIdentity, MemberResponse


def leave(
    group: ClassicGroup, members: list[MemberIdentity], result: GroupResult
) -> list[MemberResponse]:
    """Remove each of them; the outcome of each is a value."""
    responses = [
        MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=_remove(group, each, result),
        )
        for each in members
    ]
    if any(each.error_code == ErrorCode.NONE for each in responses):
        if group.state is State.PREPARING_REBALANCE:
            maybe_complete_join(group, result)
        elif group.state is not State.EMPTY:
            rebalance_or_complete(group, result, "members left")
    return responses


def _remove(group: ClassicGroup, identity: MemberIdentity, result: GroupResult) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id:
        # An operator removes a static member and need not know the id it has at present.
        member_id = group.instances.get(instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    if member_id in group.pending_join_members:
        group.remove(member_id)
        return ErrorCode.NONE
    try:
        group.check_member(member_id, instance_id)
    except ApiError as error:
        return error.code
    remove_member(group, member_id, result)
    return ErrorCode.NONE
