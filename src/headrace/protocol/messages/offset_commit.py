"""OffsetCommit: store how far a group has read."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, int16, int32, int64, string, uuid
from headrace.protocol.message import Message, Struct, message


class OffsetCommitRequestPartition(Struct):
    """The offset to store for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable=True, default=None)


class OffsetCommitRequestTopic(Struct):
    """One topic, by name up to v9 and by id from v10."""

    name: str = string(until=9, default="")
    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(api_key=8, versions=(2, 10), flexible_from=8)
class OffsetCommitRequest(Message):
    """Offsets to store for a group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=7, nullable=True, default=None)
    retention_time_ms: int = int64(until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)


class OffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string(until=9, default="")
    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(api_key=8, versions=(2, 10), flexible_from=8)
class OffsetCommitResponse(Message):
    """The outcome, per partition."""

    throttle_time_ms: int = int32(since=3, default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
