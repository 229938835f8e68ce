"""Values about groups: what is committed, who is in, how far behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.core.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset a group will read, the epoch of the record before it, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def committed_offsets(
    offsets: Mapping[TopicPartition, int | CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """Accept plain numbers wherever offsets to commit are asked for."""
    return {
        TopicPartition(*where): place
        if isinstance(place, CommittedOffset)
        else CommittedOffset(place)
        for where, place in offsets.items()
    }


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """Who commits: a member in its generation or epoch; nobody in particular by default."""

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


NO_MEMBER = GroupIdentity()


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group as listed: its state and whether it is of the classic or the new protocol."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member and what it reads; `target` is what it shall read when it has caught up."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Sequence[TopicPartition]
    target: Sequence[TopicPartition] | None = None
    epoch: int | None = None
    subscribed_topics: Sequence[str] = ()
    subscribed_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group: state, how it is assigned, and its members.

    `epoch` is that of the group, None in the classic protocol, which does not tell it.
    """

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: Sequence[MemberDescription] = ()
    epoch: int | None = None

    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """Who reads each partition."""
        return {where: member for member in self.members for where in member.assignment}


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind on one partition.

    `committed` and `lag` are None where nothing is committed; `end` is None when the partition
    is gone or its leader did not say, `start` also where it was not asked for.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    leader_epoch: int = -1
    metadata: str = ""
    member: MemberDescription | None = None
    start: int | None = None

    @property
    def deleted(self) -> int:
        """Offsets that the group has not read and nobody can read any more: below the log start."""
        if self.committed is None or self.start is None:
            return 0
        return max(self.start - self.committed, 0)


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records on from what is committed; back if negative."""

    records: int


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """What a reset would do to one partition, which holds offsets from `start` up to `end`."""

    partition: TopicPartition
    before: int | None
    after: int
    start: int
    end: int
