"""EndTxn: commit or abort a transaction."""

from headrace.protocol.fields import boolean, int16, int32, int64, string
from headrace.protocol.message import Message, message


@message(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnRequest(Message):
    """The transaction and its fate."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnResponse(Message):
    """The outcome; from v5 with the next producer epoch."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)
