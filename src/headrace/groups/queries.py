"""What can be asked about groups: lists and descriptions."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.shard_state import ShardState
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headrace.protocol.messages.list_groups import ListedGroup

NOT_FOUND_SINCE = 6
"""From this version on a group that does not exist is an error, before it was called dead."""


def list_groups(
    shard: ShardState, states: frozenset[str], types: frozenset[str]
) -> list[ListedGroup]:
    """Groups in one of the states and of one of the types, both in small letters; empty: all."""
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name(),
            group_type=group.type_name,
        )
        for group in shard.groups.values()
        if (not states or group.state_name().lower() in states)
        and (not types or group.type_name in types)
    ]


def describe_group(shard: ShardState, group_id: str, api_version: int) -> DescribedGroup:
    """A classic group with its members; what they offer is shown once it is stable."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return _not_classic(group_id, group is not None, api_version)
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_error(group_id: str, error: ApiError) -> DescribedGroup:
    """A group that could not be looked at."""
    return DescribedGroup(
        error_code=error.code,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _not_classic(group_id: str, exists: bool, api_version: int) -> DescribedGroup:
    response = DescribedGroup(
        group_id=group_id, group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    if api_version >= NOT_FOUND_SINCE:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        response.error_message = (
            f"Group {group_id} is not a classic group."
            if exists
            else f"Group {group_id} not found."
        )
    return response
