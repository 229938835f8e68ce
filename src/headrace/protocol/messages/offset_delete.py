"""OffsetDelete: forget offsets of a group."""

from headrace.protocol.fields import array, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """One topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(api_key=47, versions=(0, 0), flexible_from=None)
class OffsetDeleteRequest(Message):
    """Partitions whose offsets go."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)


class OffsetDeleteResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(api_key=47, versions=(0, 0), flexible_from=None)
class OffsetDeleteResponse(Message):
    """The outcome, per partition."""

    error_code: int = int16(default=0)
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
