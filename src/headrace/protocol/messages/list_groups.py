"""ListGroups: the groups this broker coordinates."""

from headrace.protocol.fields import array, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=16, versions=(0, 5), flexible_from=3)
class ListGroupsRequest(Message):
    """Filters by state and type."""

    states_filter: list[str] = array(string(), since=4, default=())
    types_filter: list[str] = array(string(), since=5, default=())


class ListedGroup(Struct):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, default="")
    group_type: str = string(since=5, default="")


@message(api_key=16, versions=(0, 5), flexible_from=3)
class ListGroupsResponse(Message):
    """The groups that pass."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(default=0)
    groups: list[ListedGroup] = array(ListedGroup)
