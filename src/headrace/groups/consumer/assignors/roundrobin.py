"""`roundrobin`: the partitions, in order, are dealt to the members in turn.

Plain and even, and easy to foresee for somebody who looks at two terminals: members stand in
the order of their names, partitions in that of topic and number. It keeps nothing in place
when members come and go; `uniform` does.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
)


def assign_roundrobin(
    members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]
) -> dict[str, Partitions]:
    """Deal every partition to the next member in the circle that reads its topic."""
    circle = sorted(members, key=lambda member: member.name)
    parts: dict[str, list[TopicIdPartition]] = {member.member_id: [] for member in circle}
    turn = 0
    for topic in sorted(topics.values(), key=lambda topic: topic.name):
        if not any(topic.id in member.topics for member in circle):
            continue
        for partition in range(topic.partitions):
            while topic.id not in circle[turn % len(circle)].topics:
                turn += 1
            parts[circle[turn % len(circle)].member_id].append(
                TopicIdPartition(topic.id, partition)
            )
            turn += 1
    return {member_id: frozenset(part) for member_id, part in parts.items()}
