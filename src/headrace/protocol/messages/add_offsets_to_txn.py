"""AddOffsetsToTxn: take a group's offsets into a transaction."""

from headrace.protocol.fields import int16, int32, int64, string
from headrace.protocol.message import Message, message


@message(api_key=25, versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnRequest(Message):
    """The transaction and the group."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(api_key=25, versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnResponse(Message):
    """The outcome."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
