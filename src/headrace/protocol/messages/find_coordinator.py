"""FindCoordinator: which broker looks after a group or a transactional id."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest(Message):
    """One key up to v3, a batch of keys from v4."""

    key: str = string(until=3, default="")
    key_type: int = int8(since=1, default=0)
    coordinator_keys: list[str] = array(string(), since=4, default=())


class Coordinator(Struct):
    """The coordinator of one key of the batch."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


@message(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorResponse(Message):
    """One coordinator up to v3, one per key from v4."""

    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(until=3, default=0)
    error_message: str | None = string(since=1, until=3, nullable=True, default=None)
    node_id: int = int32(until=3, default=0)
    host: str = string(until=3, default="")
    port: int = int32(until=3, default=0)
    coordinators: list[Coordinator] = array(Coordinator, since=4, default=())
