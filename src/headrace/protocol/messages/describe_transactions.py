"""DescribeTransactions: the state of transactions, by id."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest(Message):
    """The transactional ids."""

    transactional_ids: list[str] = array(string())


class TopicData(Struct):
    """Partitions of one topic in the transaction."""

    topic: str = string()
    partitions: list[int] = array(int32())


class TransactionState(Struct):
    """One transaction."""

    error_code: int = int16(default=0)
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsResponse(Message):
    """Their states."""

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)
