"""Metadata records about topics: what exists, who leads it, how it is configured."""

from uuid import UUID

from headrace.protocol.fields import array, int8, int32, string, uuid
from headrace.protocol.message import Message, message


@message(record_type=2, versions=(0, 0), flexible_from=0)
class TopicRecord(Message):
    """A topic is created."""

    name: str = string()
    topic_id: UUID = uuid()


@message(record_type=9, versions=(0, 0), flexible_from=0)
class RemoveTopicRecord(Message):
    """A topic is gone, with all its partitions."""

    topic_id: UUID = uuid()


@message(record_type=3, versions=(0, 2), flexible_from=0)
class PartitionRecord(Message):
    """A partition as a whole, when it is created or in a snapshot."""

    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    replicas: list[int] = array(int32())
    isr: list[int] = array(int32())
    removing_replicas: list[int] = array(int32(), default=())
    adding_replicas: list[int] = array(int32(), default=())
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0, default=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[UUID] = array(uuid(), since=1, default=())
    eligible_leader_replicas: list[int] | None = array(
        int32(), since=2, tag=1, nullable=True, default=None
    )
    last_known_elr: list[int] | None = array(int32(), since=2, tag=2, nullable=True, default=None)


@message(record_type=5, versions=(0, 2), flexible_from=0)
class PartitionChangeRecord(Message):
    """What changed in a partition; absent tags mean no change."""

    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    isr: list[int] | None = array(int32(), tag=0, nullable=True, default=None)
    leader: int = int32(tag=1, default=-2)
    replicas: list[int] | None = array(int32(), tag=2, nullable=True, default=None)
    removing_replicas: list[int] | None = array(int32(), tag=3, nullable=True, default=None)
    adding_replicas: list[int] | None = array(int32(), tag=4, nullable=True, default=None)
    leader_recovery_state: int = int8(tag=5, default=-1)
    directories: list[UUID] | None = array(uuid(), since=1, tag=8, nullable=True, default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32(), since=2, tag=6, nullable=True, default=None
    )
    last_known_elr: list[int] | None = array(int32(), since=2, tag=7, nullable=True, default=None)


@message(record_type=4, versions=(0, 0), flexible_from=0)
class ConfigRecord(Message):
    """One config of a resource is set, or removed by a null value."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable=True, default=None)


@message(record_type=28, versions=(0, 0), flexible_from=0)
class ClearElrRecord(Message):
    """Forget the eligible leader replicas of a topic, or of all topics."""

    topic_name: str = string()
