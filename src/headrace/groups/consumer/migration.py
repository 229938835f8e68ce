"""A group changes its protocol while it lives: classic to consumer, and back.

Upgrade: the first member that heartbeats in the consumer protocol turns a classic group of
consumers into a consumer group. Its members stay, stable at the generation they had, and go on
speaking the classic protocol to it (`classic_members`).

Downgrade: when the last member of the consumer protocol is gone and classic ones remain, the
group is classic again, and they rebalance among themselves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from headrace.core.errors import ApiError, ErrorCode, MalformedMessage
from headrace.groups.consumer import records as written
from headrace.groups.consumer.assignors.model import Partitions, TopicIdPartition
from headrace.groups.consumer.members import ClassicProtocols, ConsumerMember
from headrace.groups.records import GroupRecord
from headrace.protocol.schemas.consumer_protocol import (
    METADATA_ITEMS_MAX,
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from headrace.protocol.schemas.coordinator_frame import decode_versioned, encode_versioned
from headrace.protocol.schemas.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

if TYPE_CHECKING:
    from headrace.groups.consumer.group import ConsumerGroup
    from headrace.groups.consumer.settings import ConsumerGroupSettings
    from headrace.groups.consumer.topics import TopicsView

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""Protocol type of classic groups whose members are consumers."""


@dataclass(frozen=True, slots=True)
class ClassicMemberState:
    """A member of a classic group, as far as a migration needs it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each protocol the member supports, in its order of preference."""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ClassicGroupState:
    """A classic group, as far as a migration needs it."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    members: tuple[ClassicMemberState, ...] = ()


def tombstone(group_id: str) -> GroupRecord:
    """Erases a classic group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None)


def upgrade_records(
    classic: ClassicGroupState, *, topics: "TopicsView", settings: "ConsumerGroupSettings"
) -> list[GroupRecord]:
    """Turn a classic group into a consumer group with the same members and assignments."""
    group_id = classic.group_id
    if not classic.members:
        return [tombstone(group_id)]
    if (
        not settings.migration_policy.may_upgrade
        or classic.protocol_type != CONSUMER_PROTOCOL_TYPE
        or len(classic.members) > settings.max_size
    ):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    try:
        members = [_upgraded(member, classic, topics) for member in classic.members]
    except MalformedMessage:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group "
            "because the embedded consumer protocol is malformed.",
        ) from None
    epoch = classic.generation
    return [
        tombstone(group_id),
        *(written.member_metadata(group_id, member) for member in members),
        written.group_epoch(group_id, epoch, 0),
        *(
            written.target_assignment(group_id, member.member_id, frozenset(member.assigned))
            for member in members
        ),
        written.target_epoch(group_id, epoch, 0),
        *(written.current_assignment(group_id, member) for member in members),
    ]


def downgraded(
    group: "ConsumerGroup", members: Iterable[ConsumerMember], *, topics: "TopicsView", time_ms: int
) -> tuple[list[GroupRecord], ClassicGroupState]:
    """Turn a consumer group into a classic one of `members`, each keeping its target."""
    kept = list(members)
    protocol = _common_protocol(kept)
    state = ClassicGroupState(
        group.group_id,
        group.epoch,
        CONSUMER_PROTOCOL_TYPE,
        protocol,
        tuple(_classic(member, group.target_of(member.member_id), topics) for member in kept),
    )
    value = GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.generation,
        protocol=protocol,
        leader=None,
        current_state_timestamp=time_ms,
        members=[_stored(member, protocol) for member in state.members],
    )
    record = GroupRecord(GroupMetadataKey(group=group.group_id), value)
    return [*group.tombstones(), record], state


def subscription_of(protocols: Sequence[tuple[str, bytes]]) -> ConsumerProtocolSubscription:
    """What a classic member subscribes to; every protocol it offers says the same."""
    return decode_versioned(ConsumerProtocolSubscription, protocols[0][1], METADATA_ITEMS_MAX)[0]


def owned_by(
    owned: Iterable[OwnedPartitions | AssignedPartitions], topics: "TopicsView"
) -> Partitions:
    """Partitions that a classic member names, by the ids of their topics."""
    found: set[TopicIdPartition] = set()
    for each in owned:
        topic = topics.get(each.topic)
        if topic is not None:
            found.update(TopicIdPartition(topic.id, partition) for partition in each.partitions)
    return frozenset(found)


def encoded_assignment(
    partitions: Iterable[TopicIdPartition],
    protocols: Sequence[tuple[str, bytes]],
    topics: "TopicsView",
) -> bytes:
    """An assignment in the version of the subscription that the member sent."""
    version = int.from_bytes(protocols[0][1][:2], "big") if protocols[0][1] else 0
    highest = ConsumerProtocolAssignment.schema.highest_version
    assigned = [
        AssignedPartitions(topic=name, partitions=numbers)
        for topic_id, numbers in written.by_topic(partitions).items()
        if (name := _name(topic_id, topics)) is not None
    ]
    return encode_versioned(
        ConsumerProtocolAssignment(assigned_partitions=assigned), min(version, highest)
    )


def _upgraded(
    member: ClassicMemberState, classic: ClassicGroupState, topics: "TopicsView"
) -> ConsumerMember:
    subscription = subscription_of(member.protocols)
    assigned: Partitions = frozenset()
    if member.assignment:
        assignment, _ = decode_versioned(
            ConsumerProtocolAssignment, member.assignment, METADATA_ITEMS_MAX
        )
        assigned = owned_by(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=dict.fromkeys(assigned, classic.generation),
    )


def _common_protocol(members: Iterable[ConsumerMember]) -> str | None:
    """The protocol that all members support and most of them like best."""
    offered = [member.classic for member in members if member.classic is not None]
    if not offered:
        return None
    common = frozenset.intersection(*(each.names for each in offered))
    votes = [next(name for name, _ in each.protocols if name in common) for each in offered]
    return max(dict.fromkeys(votes), key=votes.count)


def _classic(
    member: ConsumerMember, target: Partitions, topics: "TopicsView"
) -> ClassicMemberState:
    assert member.classic is not None, "a member of the consumer protocol cannot be downgraded"
    return ClassicMemberState(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        member.classic.protocols,
        encoded_assignment(target, member.classic.protocols, topics),
    )


def _stored(member: ClassicMemberState, protocol: str | None) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=next(
            (metadata for name, metadata in member.protocols if name == protocol), b""
        ),
        assignment=member.assignment,
    )


def _name(topic_id: UUID, topics: "TopicsView") -> str | None:
    topic = topics.by_id(topic_id)
    return None if topic is None else topic.name
