"""SyncGroup: hand out and fetch the assignment of a classic group."""

from headrace.protocol.fields import array, binary, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class SyncGroupRequestAssignment(Struct):
    """The share of one member, opaque to the broker."""

    member_id: str = string()
    assignment: bytes = binary()


@message(api_key=14, versions=(0, 5), flexible_from=4)
class SyncGroupRequest(Message):
    """The assignment, if the sender leads the group."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    protocol_type: str | None = string(since=5, nullable=True, default=None)
    protocol_name: str | None = string(since=5, nullable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(api_key=14, versions=(0, 5), flexible_from=4)
class SyncGroupResponse(Message):
    """This member's share."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(default=0)
    protocol_type: str | None = string(since=5, nullable=True, default=None)
    protocol_name: str | None = string(since=5, nullable=True, default=None)
    assignment: bytes = binary()
