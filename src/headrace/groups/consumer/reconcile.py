"""One member's next step towards its target: first give up, then wait, then take.

A partition is taken only when nobody holds it. That alone makes sure that it never has two
owners, whatever the order in which members come by.
"""

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.assignors.model import Partitions, TopicIdPartition
from headrace.groups.consumer.members import NOTHING_OWNED, ConsumerMember, MemberState, Owned


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Partitions,
    owners: Mapping[TopicIdPartition, str],
    owned: Partitions | None,
) -> ConsumerMember:
    """The member after this heartbeat; the same object where it cannot move.

    `owned` is what the member says it owns, None where it says nothing: only a member that
    names its partitions without those to be revoked has given them up.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _holds(owned, member.pending_revocation):
            return member
        case MemberState.UNKNOWN if owned is None or owned:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
    return _next(member, target_epoch, target, owners, owned)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owners: Mapping[TopicIdPartition, str],
    owned: Partitions | None,
) -> ConsumerMember:
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    surplus = {
        partition: epoch for partition, epoch in member.assigned.items() if partition not in target
    }
    if surplus and _holds(owned, surplus):
        return member.moved(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, surplus)
    # What it has just given up is recorded as its own until this step is.
    wanted = [partition for partition in target if partition not in kept]
    free = {
        partition: target_epoch
        for partition in wanted
        if owners.get(partition, member.member_id) == member.member_id
    }
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    moved = member.moved(target_epoch, state, {**kept, **free}, NOTHING_OWNED)
    return member if _same(moved, member) else moved


def _holds(owned: Partitions | None, partitions: Owned) -> bool:
    return owned is None or not owned.isdisjoint(partitions)


def _same(moved: ConsumerMember, member: ConsumerMember) -> bool:
    return replace(moved, previous_epoch=member.previous_epoch) == member
