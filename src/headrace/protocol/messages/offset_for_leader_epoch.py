"""OffsetForLeaderEpoch: where a leader epoch ended (KIP-320)."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class OffsetForLeaderPartition(Struct):
    """The epoch to look up in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """One topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(api_key=23, versions=(2, 4), flexible_from=4)
class OffsetForLeaderEpochRequest(Message):
    """Epochs to look up."""

    replica_id: int = int32(since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The end of the epoch in one partition."""

    error_code: int = int16(default=0)
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """The outcome for one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(api_key=23, versions=(2, 4), flexible_from=4)
class OffsetForLeaderEpochResponse(Message):
    """Their end offsets."""

    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
