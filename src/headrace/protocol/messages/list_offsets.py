"""ListOffsets: the offset at a time, or at either end of a partition."""

from headrace.protocol.fields import array, int8, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class ListOffsetsPartition(Struct):
    """The time to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """One topic to look into."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(api_key=2, versions=(1, 11), flexible_from=6)
class ListOffsetsRequest(Message):
    """Times to look up; negative ones have special meanings."""

    replica_id: int = int32()
    isolation_level: int = int8(since=2, default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, default=0)


class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition, or -1."""

    partition_index: int = int32()
    error_code: int = int16(default=0)
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    """The offsets found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(api_key=2, versions=(1, 11), flexible_from=6)
class ListOffsetsResponse(Message):
    """The offsets found."""

    throttle_time_ms: int = int32(since=2, default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
