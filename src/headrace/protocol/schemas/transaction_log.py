"""What `__transaction_state` holds, and the markers that end a transaction."""

from headrace.protocol.fields import array, int8, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


@message(record_type=0, versions=(0, 0), flexible_from=None)
class TransactionLogKey(Message):
    """Which transactional id a record is about."""

    transactional_id: str = string()


class TransactionPartitions(Struct):
    """Partitions of one topic in the transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32())


@message(record_type=0, versions=(0, 1), flexible_from=1)
class TransactionLogValue(Message):
    """The state of one transaction."""

    producer_id: int = int64()
    previous_producer_id: int = int64(since=1, tag=0, default=-1)
    next_producer_id: int = int64(since=1, tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(since=1, tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionPartitions] | None = array(
        TransactionPartitions, nullable=True, default=None
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(since=1, tag=2, default=0)


@message(versions=(0, 0), flexible_from=None)
class EndTxnMarker(Message):
    """Value of the commit or abort marker in a data partition."""

    coordinator_epoch: int = int32()
