"""DeleteRecords: move the start of partitions forward."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class DeleteRecordsPartition(Struct):
    """The new first offset of one partition; -1 means its high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """One topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(api_key=21, versions=(0, 2), flexible_from=2)
class DeleteRecordsRequest(Message):
    """Where partitions should start."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16(default=0)


class DeleteRecordsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(api_key=21, versions=(0, 2), flexible_from=2)
class DeleteRecordsResponse(Message):
    """Where they start now."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
