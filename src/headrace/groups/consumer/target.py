"""From subscriptions to the target assignment: topics, group epoch, who should own what."""

from collections.abc import Iterable
from hashlib import blake2b

from headrace.groups.consumer import patterns
from headrace.groups.consumer import records as written
from headrace.groups.consumer.assignors import ASSIGNORS
from headrace.groups.consumer.assignors.model import MemberSpec, TopicSpec
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.topics import TopicInfo, TopicsView


def refresh_subscriptions(draft: Draft, *, bump: bool) -> None:
    """Bring patterns and group epoch up to date with members and topics.

    `bump` says that the members changed; otherwise the epoch moves only if topics they read
    did, and nothing is looked at while the metadata is the one last looked at.
    """
    version = draft.context.topics.version
    if not bump and draft.group.topics_version == version:
        return
    _resolve_patterns(draft, again=draft.group.topics_version != version)
    metadata_hash = subscription_hash(draft.group, draft.context.topics)
    if bump or metadata_hash != draft.group.metadata_hash:
        group = draft.group
        draft.write(written.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
    draft.topics_version = version


def refresh_target(draft: Draft) -> None:
    """Compute the target anew where it lags behind the group epoch; write what differs."""
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    settings = draft.context.settings
    preferred = group.preferred_assignor()
    name = preferred if preferred in settings.assignors else settings.assignors[0]
    assert name is not None
    topics = {topic.id: topic for topic in _specs(group.subscribed_topics(), draft)}
    ids = {topic.name: topic.id for topic in topics.values()}
    members = [
        MemberSpec(
            member.member_id,
            frozenset(ids[topic] for topic in group.topics_of(member) if topic in ids),
            group.target_of(member.member_id),
            member.instance_id,
        )
        for member in group.members.values()
    ]
    for member_id, partitions in ASSIGNORS[name](members, topics).items():
        if group.target.get(member_id) != partitions:
            draft.write(written.target_assignment(group.group_id, member_id, partitions))
    draft.write(written.target_epoch(group.group_id, group.epoch, draft.context.time_ms))


def subscription_hash(group: ConsumerGroup, topics: TopicsView) -> int:
    """A number that changes with the topics the group reads and with their partitions.

    Only this broker ever compares it, so it need not be the one that Kafka computes.
    """
    found = sorted(_existing(group.subscribed_topics(), topics))
    if not found:
        return 0
    digest = blake2b(digest_size=8)
    for name, topic_id, partitions in found:
        digest.update(f"{name}\0{topic_id.hex}\0{partitions}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def _resolve_patterns(draft: Draft, *, again: bool) -> None:
    group, context = draft.group, draft.context
    wanted = {member.topic_regex for member in group.members.values()} - {None}
    for pattern in group.patterns.keys() - wanted:
        draft.write(written.regular_expression_tombstone(group.group_id, pattern))
    for pattern in sorted(filter(None, wanted)):
        known = group.patterns.get(pattern)
        if known is not None and not again:
            continue
        topics = patterns.matching(pattern, context.topics.names(), context.can_describe)
        if known is None or known.topics != topics:
            draft.write(
                written.regular_expression(
                    group.group_id, pattern, topics, context.topics.version, context.time_ms
                )
            )


def _existing(names: Iterable[str], topics: TopicsView) -> Iterable[TopicInfo]:
    return filter(None, map(topics.get, names))


def _specs(names: Iterable[str], draft: Draft) -> list[TopicSpec]:
    return [
        TopicSpec(topic.id, topic.name, topic.partitions)
        for topic in _existing(names, draft.context.topics)
    ]
