"""What the operations on groups see of the shard that they work on."""

from dataclasses import dataclass
from typing import Protocol

from headrace.core.ids import TopicPartition
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.offsets import CommittedOffsets, OffsetAndMetadata
from headrace.groups.records import GroupRecord
from headrace.groups.result import GroupResult

Group = ClassicGroup | ConsumerGroup


@dataclass(slots=True)
class GroupCounts:
    """What has happened in all groups of a node since its start."""

    commits: int = 0
    """Offsets committed."""
    rebalances: int = 0
    """Generations of classic groups completed and epochs of others begun."""
    expired_offsets: int = 0
    """Offsets that outlived their retention."""


class ShardState(Protocol):
    """Groups and their offsets."""

    groups: dict[str, Group]
    offsets: CommittedOffsets
    counts: GroupCounts

    def append(self, result: GroupResult, *records: GroupRecord) -> None:
        """Hand over records whose whole effect is what `replay` makes of them."""
        ...

    def put_offset(
        self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> None:
        """What the record of a commit does."""
        ...

    def schedule(self, group_id: str, result: GroupResult) -> None:
        """A group has changed: be there when it next has to be looked at."""
        ...
