"""Records of `__consumer_offsets` that classic groups write: offsets and group state."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, binary, int32, int64, string, uuid
from headrace.protocol.message import Message, Struct, message


@message(record_type=0, versions=(0, 0), flexible_from=None)
class LegacyOffsetCommitKey(Message):
    """Which offset a record is about, as brokers before 0.9 wrote it."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(record_type=0, versions=(0, 0), flexible_from=None)
class LegacyOffsetCommitValue(Message):
    """A committed offset, as brokers before 0.9 wrote it."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


@message(record_type=1, versions=(0, 0), flexible_from=None)
class OffsetCommitKey(Message):
    """Which group and partition a committed offset belongs to."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(record_type=1, versions=(0, 4), flexible_from=4)
class OffsetCommitValue(Message):
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1)
    topic_id: UUID = uuid(since=4, tag=0, default=NULL_UUID)


@message(record_type=2, versions=(0, 0), flexible_from=None)
class GroupMetadataKey(Message):
    """Which classic group a record is about."""

    group: str = string()


class MemberMetadata(Struct):
    """One member of the group."""

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@message(record_type=2, versions=(0, 4), flexible_from=4)
class GroupMetadataValue(Message):
    """A classic group: its generation and members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=True, default=None)
    leader: str | None = string(nullable=True, default=None)
    current_state_timestamp: int = int64(since=2, default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
