"""DeleteGroups: remove empty groups and their offsets."""

from headrace.protocol.fields import array, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=42, versions=(0, 2), flexible_from=2)
class DeleteGroupsRequest(Message):
    """Groups to delete."""

    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: str = string()
    error_code: int = int16(default=0)


@message(api_key=42, versions=(0, 2), flexible_from=2)
class DeleteGroupsResponse(Message):
    """The outcome, per group."""

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
