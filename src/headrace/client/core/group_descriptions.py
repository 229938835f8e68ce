"""From what brokers say of a group to what users see."""

from headrace.client.core.classic_requests import PROTOCOL_TYPE
from headrace.client.core.group_models import GroupDescription, MemberDescription
from headrace.client.core.member_metadata import decode_assignment
from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.protocol.messages import consumer_group_describe, describe_groups


def describe_consumer(
    group: consumer_group_describe.DescribedGroup, coordinator: int
) -> GroupDescription:
    """A KIP-848 group."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_type="consumer",
        protocol_type=PROTOCOL_TYPE,
        assignor=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_partitions(member.assignment),
                target=_partitions(member.target_assignment),
                epoch=member.member_epoch,
                subscribed_topics=sorted(member.subscribed_topic_names),
                subscribed_pattern=member.subscribed_topic_regex or None,
            )
            for member in group.members
        ],
    )


def _partitions(assignment: consumer_group_describe.Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def describe_classic(group: describe_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """A classic group; what members of other kinds than consumers own is not for us to read."""
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_type="classic",
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_readable(member.member_assignment) if is_consumer else [],
            )
            for member in group.members
        ],
    )


def _readable(assignment: Buffer) -> list[TopicPartition]:
    try:
        return decode_assignment(assignment)
    except MalformedMessage:
        return []
