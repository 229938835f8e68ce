"""Heartbeat: stay in a classic consumer group."""

from headrace.protocol.fields import int16, int32, string
from headrace.protocol.message import Message, message


@message(api_key=12, versions=(0, 4), flexible_from=4)
class HeartbeatRequest(Message):
    """A sign of life from one member."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)


@message(api_key=12, versions=(0, 4), flexible_from=4)
class HeartbeatResponse(Message):
    """Whether all is well or a rejoin is due."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(default=0)
