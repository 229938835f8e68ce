"""What an assignor is given and what it returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple
from uuid import UUID


class TopicIdPartition(NamedTuple):
    """One partition, by its topic's id: a topic created again is another topic."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]

NO_PARTITIONS: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it."""

    member_id: str
    topics: frozenset[UUID]
    """Topics it subscribes to; only such that exist."""
    previous: Partitions = NO_PARTITIONS
    """Its part of the target so far; may hold partitions that are gone."""
    instance_id: str | None = None

    @property
    def name(self) -> str:
        """What stays the same when a static member comes back under another member id."""
        return self.member_id if self.instance_id is None else self.instance_id


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic that somebody subscribes to."""

    id: UUID
    name: str
    partitions: int


Assignor = Callable[[Sequence[MemberSpec], Mapping[UUID, TopicSpec]], dict[str, Partitions]]
"""Returns a part for every member, perhaps an empty one; parts do not overlap."""


def readers_of(
    members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]
) -> dict[UUID, Sequence[int]]:
    """For each topic the places of its readers among `members`, in order.

    Costs what the different subscriptions are long: mostly all members have the same one.
    """
    alike: dict[frozenset[UUID], list[int]] = {}
    for place, member in enumerate(members):
        alike.setdefault(member.topics, []).append(place)
    found: dict[UUID, list[list[int]]] = {topic_id: [] for topic_id in topics}
    for topic_ids, places in alike.items():
        for topic_id in topic_ids:
            found[topic_id].append(places)
    return {
        topic_id: parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))
        for topic_id, parts in found.items()
    }
