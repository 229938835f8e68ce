"""LeaveGroup: leave a classic consumer group."""

from headrace.protocol.fields import array, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class MemberIdentity(Struct):
    """One member that leaves."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=True, default=None)
    reason: str | None = string(since=5, nullable=True, default=None)


@message(api_key=13, versions=(0, 5), flexible_from=4)
class LeaveGroupRequest(Message):
    """One member up to v2, a batch from v3."""

    group_id: str = string()
    member_id: str = string(until=2, default="")
    members: list[MemberIdentity] = array(MemberIdentity, since=3, default=())


class MemberResponse(Struct):
    """The outcome for one member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=True, default=None)
    error_code: int = int16(default=0)


@message(api_key=13, versions=(0, 5), flexible_from=4)
class LeaveGroupResponse(Message):
    """The outcome, per member from v3."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(default=0)
    members: list[MemberResponse] = array(MemberResponse, since=3, default=())
