"""DescribeProducers: producers with state in partitions."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


@message(api_key=61, versions=(0, 0), flexible_from=0)
class DescribeProducersRequest(Message):
    """The partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """What the partition knows of one producer."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(api_key=61, versions=(0, 0), flexible_from=0)
class DescribeProducersResponse(Message):
    """Their producers."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse)
