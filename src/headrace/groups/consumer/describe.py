"""A consumer group as ConsumerGroupDescribe shows it."""

from collections.abc import Iterable

from headrace.core.errors import ApiError
from headrace.groups.consumer import records as written
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.topics import TopicsView
from headrace.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from headrace.protocol.messages.consumer_group_describe import Member as DescribedMember

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe(group: ConsumerGroup, topics: TopicsView, default_assignor: str) -> DescribedGroup:
    """State, epochs and members, each with what it has and what it should have."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def describe_error(group_id: str, error: ApiError) -> DescribedGroup:
    """A group that could not be looked at."""
    return DescribedGroup(
        error_code=error.code,
        error_message=None if error.message == error.code.name else error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], topics: TopicsView) -> Assignment:
    """Named; a topic that is gone cannot be, and is left out."""
    named = [
        TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=numbers)
        for topic_id, numbers in written.by_topic(partitions).items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    return Assignment(topic_partitions=named)
