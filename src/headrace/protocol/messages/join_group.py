"""JoinGroup: enter a classic consumer group."""

from headrace.protocol.fields import array, binary, boolean, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class JoinGroupRequestProtocol(Struct):
    """One protocol the member offers."""

    name: str = string()
    metadata: bytes = binary()


@message(api_key=11, versions=(0, 9), flexible_from=6)
class JoinGroupRequest(Message):
    """Who joins and which protocols it speaks."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=True, default=None)


class JoinGroupResponseMember(Struct):
    """One member, as sent to the leader."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=True, default=None)
    metadata: bytes = binary()


@message(api_key=11, versions=(0, 9), flexible_from=6)
class JoinGroupResponse(Message):
    """The new generation; the leader also gets the members."""

    throttle_time_ms: int = int32(since=2, default=0)
    error_code: int = int16(default=0)
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=True, default=None)
    protocol_name: str | None = string(nullable=7, default=None)
    leader: str = string()
    skip_assignment: bool = boolean(since=9, default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
