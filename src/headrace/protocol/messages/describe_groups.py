"""DescribeGroups: state and members of classic groups."""

from headrace.protocol.fields import array, binary, boolean, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=15, versions=(0, 6), flexible_from=5)
class DescribeGroupsRequest(Message):
    """Groups to describe."""

    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean(since=3, default=False)


class DescribedGroupMember(Struct):
    """One member of the group."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    """One group."""

    error_code: int = int16(default=0)
    error_message: str | None = string(since=6, nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-2147483648)


@message(api_key=15, versions=(0, 6), flexible_from=5)
class DescribeGroupsResponse(Message):
    """The groups."""

    throttle_time_ms: int = int32(since=1, default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
