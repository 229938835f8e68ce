"""AddPartitionsToTxn: take partitions into a transaction."""

from headrace.protocol.fields import array, boolean, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32())


class AddPartitionsToTxnTransaction(Struct):
    """One transaction of the batch (from v4)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean(default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message(api_key=24, versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnRequest(Message):
    """One transaction from a client (up to v3), or a batch from a broker."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4, default=()
    )
    v3_and_below_transactional_id: str = string(until=3, default="")
    v3_and_below_producer_id: int = int64(until=3, default=0)
    v3_and_below_producer_epoch: int = int16(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, until=3, default=()
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(Struct):
    """The outcome for one transaction of the batch."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message(api_key=24, versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnResponse(Message):
    """The outcome, per partition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4, default=()
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3, default=()
    )
