"""InitProducerId: get an identity for an idempotent or transactional producer."""

from headrace.protocol.fields import int16, int32, int64, string
from headrace.protocol.message import Message, message


@message(api_key=22, versions=(0, 5), flexible_from=2)
class InitProducerIdRequest(Message):
    """Who asks, and what it had before (KIP-360)."""

    transactional_id: str | None = string(nullable=True, default=None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


@message(api_key=22, versions=(0, 5), flexible_from=2)
class InitProducerIdResponse(Message):
    """The producer id and epoch."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
