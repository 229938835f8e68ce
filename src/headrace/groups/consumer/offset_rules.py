"""Who may commit and fetch the offsets of a consumer group (KIP-848, KIP-1251)."""

from collections.abc import Callable

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.topics import TopicsView

COMMIT_WITH_EPOCH_SINCE = 9

PartitionCheck = Callable[[str, int], None]
"""Raises for a topic and partition that may not be committed."""


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, api_version: int, topics: TopicsView
) -> PartitionCheck | None:
    """Refuse a stranger and an epoch from the future; anybody may commit for an empty group.

    A member that comes with an older epoch may have missed the answer that moved it: what it
    has held since before that epoch it may commit, so each partition has to pass the check.
    """
    if epoch < 0 and group.is_empty():
        return None
    member = group.member(member_id)
    if not member.uses_classic_protocol and api_version < COMMIT_WITH_EPOCH_SINCE:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer "
            "group protocol",
        )
    if epoch > member.epoch:
        raise _stale(member, f"{epoch} is newer than current member epoch {member.epoch}.")
    if epoch == member.epoch:
        return None
    return lambda topic, partition: _check_partition(member, epoch, topic, partition, topics)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse a member that is not in the group or not in its epoch; others may look."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise ApiError(
            _code(member),
            f"The received {_word(member)} {epoch} does not match "
            f"the expected member epoch {member.epoch}.",
        )


def _check_partition(
    member: ConsumerMember, epoch: int, topic: str, partition: int, topics: TopicsView
) -> None:
    found = topics.get(topic)
    topic_partition = None if found is None else TopicIdPartition(found.id, partition)
    assigned_at = None
    if topic_partition is not None:
        assigned_at = member.assigned.get(
            topic_partition, member.pending_revocation.get(topic_partition)
        )
    if assigned_at is None:
        raise ApiError(
            _code(member),
            f"Partition {topic}-{partition} is not assigned or pending revocation for member.",
        )
    if epoch < assigned_at:
        raise _stale(
            member,
            f"{epoch} is older than assignment epoch {assigned_at} "
            f"for partition {topic}-{partition}.",
        )


def _stale(member: ConsumerMember, problem: str) -> ApiError:
    return ApiError(_code(member), f"Received {_word(member)} {problem}")


def _word(member: ConsumerMember) -> str:
    return "generation id" if member.uses_classic_protocol else "member epoch"


def _code(member: ConsumerMember) -> ErrorCode:
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
