"""DescribeTopicPartitions: topics page by page."""

from uuid import UUID

from headrace.protocol.fields import array, boolean, int16, int32, string, struct, uuid
from headrace.protocol.message import Message, Struct, message


class TopicRequest(Struct):
    """One topic asked for."""

    name: str = string()


class Cursor(Struct):
    """The first partition of the page asked for."""

    topic_name: str = string()
    partition_index: int = int32()


@message(api_key=75, versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsRequest(Message):
    """Topics, and where to go on."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable=True, default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition, eligible leaders included (KIP-966)."""

    error_code: int = int16(default=0)
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), nullable=True, default=None)
    last_known_elr: list[int] | None = array(int32(), nullable=True, default=None)
    offline_replicas: list[int] = array(int32())


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic."""

    error_code: int = int16(default=0)
    name: str | None = string(nullable=True, default=None)
    topic_id: UUID = uuid()
    is_internal: bool = boolean(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class NextCursor(Struct):
    """The first partition of the next page."""

    topic_name: str = string()
    partition_index: int = int32()


@message(api_key=75, versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsResponse(Message):
    """One page of partitions, and where the next begins."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: NextCursor | None = struct(NextCursor, nullable=True, default=None)
