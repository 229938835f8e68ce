"""Who may commit and fetch the offsets of a consumer group (KIP-848, KIP-1251)."""

from uuid import UUID

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import Member

COMMIT_WITH_EPOCH_SINCE = 9


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, api_version: int
) -> Member | None:
    """Refuse a stranger and an epoch from the future; anybody may commit for an empty group.

    A member that comes with an older epoch is returned: each of its partitions has to be
    checked with `check_partition`. It may have missed the answer that moved it.
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
    return member if epoch < member.epoch else None


def check_partition(member: Member, epoch: int, topic: str, topic_id: UUID, partition: int) -> None:
    """Refuse a commit for what the member does not hold, or got only after `epoch`."""
    place = TopicIdPartition(topic_id, partition)
    assigned_at = member.assigned.get(place, member.pending_revocation.get(place))
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


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse a member that is not in the group or not in its epoch; others may look."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        received = "generation id" if member.uses_classic_protocol else "member epoch"
        raise ApiError(
            _code(member),
            f"The received {received} {epoch} does not match "
            f"the expected member epoch {member.epoch}.",
        )


def _stale(member: Member, problem: str) -> ApiError:
    received = "generation id" if member.uses_classic_protocol else "member epoch"
    return ApiError(_code(member), f"Received {received} {problem}")


def _code(member: Member) -> ErrorCode:
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
