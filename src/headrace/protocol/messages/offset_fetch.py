"""OffsetFetch: how far groups have read."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, boolean, int16, int32, int64, string, uuid
from headrace.protocol.message import Message, Struct, message


class OffsetFetchRequestTopic(Struct):
    """One topic of the single group (up to v7)."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class OffsetFetchRequestTopics(Struct):
    """One topic of a group in the batch."""

    name: str = string(until=9, default="")
    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    partition_indexes: list[int] = array(int32())


class OffsetFetchRequestGroup(Struct):
    """One group of the batch (from v8)."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable=True, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable=True)


@message(api_key=9, versions=(1, 10), flexible_from=6)
class OffsetFetchRequest(Message):
    """One group up to v7, a batch of groups from v8."""

    group_id: str = string(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable=2, default=()
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, default=())
    require_stable: bool = boolean(since=7, default=False)


class OffsetFetchResponsePartition(Struct):
    """The stored offset of one partition (up to v7)."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable=True, default=None)
    error_code: int = int16(default=0)


class OffsetFetchResponseTopic(Struct):
    """One topic of the single group (up to v7)."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """The stored offset of one partition (from v8)."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable=True, default=None)
    error_code: int = int16(default=0)


class OffsetFetchResponseTopics(Struct):
    """One topic of a group in the batch."""

    name: str = string(until=9, default="")
    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """One group of the batch (from v8)."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16(default=0)


@message(api_key=9, versions=(1, 10), flexible_from=6)
class OffsetFetchResponse(Message):
    """The stored offsets; -1 where there is none."""

    throttle_time_ms: int = int32(since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7, default=())
    error_code: int = int16(since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8, default=())
