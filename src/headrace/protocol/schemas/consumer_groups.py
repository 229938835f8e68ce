"""Records of `__consumer_offsets` that KIP-848 groups write."""

from uuid import UUID

from headrace.protocol.fields import array, binary, int8, int32, int64, string, struct, uuid
from headrace.protocol.message import Message, Struct, message


@message(record_type=3, versions=(0, 0), flexible_from=None)
class ConsumerGroupMetadataKey(Message):
    """Which group the epoch belongs to."""

    group_id: str = string()


@message(record_type=3, versions=(0, 0), flexible_from=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of a group."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


@message(record_type=4, versions=(0, 0), flexible_from=None)
class ConsumerGroupPartitionMetadataKey(Message):
    """Which group the topic metadata belongs to."""

    group_id: str = string()


class PartitionMetadata(Struct):
    """Racks of one partition."""

    partition: int = int32()
    racks: list[str] = array(string())


class TopicMetadata(Struct):
    """One topic of the group."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@message(record_type=4, versions=(0, 0), flexible_from=0)
class ConsumerGroupPartitionMetadataValue(Message):
    """The topics a group reads, as older brokers kept them."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@message(record_type=5, versions=(0, 0), flexible_from=None)
class ConsumerGroupMemberMetadataKey(Message):
    """Which member the record is about."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    """One protocol the member offers."""

    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    """What a member of the classic protocol keeps while the group is on the new one."""

    session_timeout_ms: int = int32(default=0)
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, default=())


@message(record_type=5, versions=(0, 0), flexible_from=0)
class ConsumerGroupMemberMetadataValue(Message):
    """What a member sent about itself."""

    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=True, default=None)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        # Missing means an empty struct here, so that null always travels.
        ClassicMemberMetadata,
        tag=0,
        nullable=True,
        default=ClassicMemberMetadata,
    )


@message(record_type=6, versions=(0, 0), flexible_from=None)
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Which group the target belongs to."""

    group_id: str = string()


@message(record_type=6, versions=(0, 0), flexible_from=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0)


@message(record_type=7, versions=(0, 0), flexible_from=None)
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Which member the target is for."""

    group_id: str = string()
    member_id: str = string()


class TargetTopicPartitions(Struct):
    """Partitions of one topic in the target."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32())


@message(record_type=7, versions=(0, 0), flexible_from=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """What a member should own in the end."""

    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


@message(record_type=8, versions=(0, 0), flexible_from=None)
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Which member the assignment belongs to."""

    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    """Partitions of one topic, owned or being revoked."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32())
    assignment_epochs: list[int] | None = array(int32(), tag=0, nullable=True, default=())


@message(record_type=8, versions=(0, 0), flexible_from=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """What a member owns now, and what it is giving up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


@message(record_type=16, versions=(0, 0), flexible_from=None)
class ConsumerGroupRegularExpressionKey(Message):
    """Which group and pattern the record is about."""

    group_id: str = string()
    regular_expression: str = string()


@message(record_type=16, versions=(0, 0), flexible_from=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The topics a pattern stood for when it was last resolved."""

    topics: list[str] = array(string())
    version: int = int64()
    timestamp: int = int64()
