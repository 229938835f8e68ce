"""ConsumerGroupDescribe: state and members of KIP-848 groups."""

from uuid import UUID

from headrace.protocol.fields import array, boolean, int8, int16, int32, string, struct, uuid
from headrace.protocol.message import Message, Struct, message


@message(api_key=69, versions=(0, 1), flexible_from=0)
class ConsumerGroupDescribeRequest(Message):
    """Groups to describe."""

    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    """Partitions a member has or should have."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One member of the group."""

    member_id: str = string()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable=True, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1)


class DescribedGroup(Struct):
    """One group."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@message(api_key=69, versions=(0, 1), flexible_from=0)
class ConsumerGroupDescribeResponse(Message):
    """The groups."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
