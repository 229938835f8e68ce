"""The records of a consumer group, in Kafka's formats."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.groups.consumer.assignors.model import Partitions, TopicIdPartition
from headrace.groups.consumer.members import ClassicProtocols, ConsumerMember, MemberState, Owned
from headrace.groups.records import GroupRecord
from headrace.protocol.schemas.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def member_metadata(group_id: str, member: ConsumerMember) -> GroupRecord:
    """What the member told about itself; what it owns is in `current_assignment`."""
    return GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=_classic(member.classic),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """Forget a member; Kafka expects its assignments to go first."""
    return (
        GroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        GroupRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def target_epoch(group_id: str, epoch: int, time_ms: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=time_ms
        ),
    )


def target_epoch_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(partitions).items()
            ]
        ),
    )


def current_assignment(group_id: str, member: ConsumerMember) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned(member.assigned),
            partitions_pending_revocation=_owned(member.pending_revocation),
        ),
    )


def regular_expression(
    group_id: str, pattern: str, topics: Iterable[str], version: int, time_ms: int
) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=time_ms
        ),
    )


def regular_expression_tombstone(group_id: str, pattern: str) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None
    )


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Partition numbers by topic, in order."""
    grouped: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        grouped.setdefault(topic_id, []).append(partition)
    return grouped


def partitions_of(
    topics: Iterable[TargetTopicPartitions | CurrentTopicPartitions],
) -> Partitions:
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in topics
        for partition in topic.partitions
    )


def with_metadata(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    """The member as a record describes it, owning what it owned."""
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or None,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
    )


def owned_of(topics: Iterable[CurrentTopicPartitions], epoch: int) -> Owned:
    """Partitions with the epochs they were given at; older records do not tell them."""
    owned: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [epoch] * len(topic.partitions)
        for partition, assigned_at in zip(topic.partitions, epochs, strict=True):
            owned[TopicIdPartition(topic.topic_id, partition)] = assigned_at
    return owned


def state_of(number: int) -> MemberState:
    """The state a record names; one from a later Kafka is UNKNOWN."""
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _owned(owned: Mapping[TopicIdPartition, int]) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[owned[TopicIdPartition(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in by_topic(owned).items()
    ]


def _classic(classic: ClassicProtocols | None) -> ClassicMemberMetadata | None:
    if classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )
