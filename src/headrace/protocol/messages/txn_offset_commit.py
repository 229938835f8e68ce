"""TxnOffsetCommit: store a group's offsets as part of a transaction."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class TxnOffsetCommitRequestPartition(Struct):
    """The offset to store for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable=True, default=None)


class TxnOffsetCommitRequestTopic(Struct):
    """One topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(api_key=28, versions=(0, 5), flexible_from=3)
class TxnOffsetCommitRequest(Message):
    """The transaction, the group and its offsets."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3, default="")
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)


class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(api_key=28, versions=(0, 5), flexible_from=3)
class TxnOffsetCommitResponse(Message):
    """The outcome, per partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
