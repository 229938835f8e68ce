"""ConsumerGroupHeartbeat: the whole life of a member in a KIP-848 group."""

from uuid import UUID

from headrace.protocol.fields import array, int16, int32, string, struct, uuid
from headrace.protocol.message import Message, Struct, message


class OwnedTopicPartitions(Struct):
    """Partitions of one topic that the member owns."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32())


@message(api_key=68, versions=(0, 1), flexible_from=0)
class ConsumerGroupHeartbeatRequest(Message):
    """What changed on the member's side; null means unchanged."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), nullable=True, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=True, default=None)
    server_assignor: str | None = string(nullable=True, default=None)
    topic_partitions: list[OwnedTopicPartitions] | None = array(
        OwnedTopicPartitions, nullable=True, default=None
    )


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    """What the member should own."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(api_key=68, versions=(0, 1), flexible_from=0)
class ConsumerGroupHeartbeatResponse(Message):
    """What changed on the group's side."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=True, default=None)
