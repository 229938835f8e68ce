"""`roundrobin`: the partitions, in order, are dealt to the members in turn.

Plain and even, and easy to foresee for somebody who looks at two terminals: members stand in
the order of their names, partitions in that of topic and number. It keeps nothing in place
when members come and go; `uniform` does.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from uuid import UUID

from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
    readers_of,
)


def assign_roundrobin(
    members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]
) -> dict[str, Partitions]:
    """Deal every partition to the next member in the circle that reads its topic."""
    circle = sorted(members, key=lambda member: member.name)
    parts: dict[str, list[TopicIdPartition]] = {member.member_id: [] for member in circle}
    readers = readers_of(circle, topics)
    turn = 0
    for topic in sorted(topics.values(), key=lambda topic: topic.name):
        places = readers[topic.id]
        if not places:
            continue
        # The first reader whose turn it is or comes next, and on from there.
        number = bisect_left(places, turn)
        for partition in range(topic.partitions):
            place = places[number % len(places)]
            parts[circle[place].member_id].append(TopicIdPartition(topic.id, partition))
            number += 1
            turn = (place + 1) % len(circle)
    return {member_id: frozenset(part) for member_id, part in parts.items()}
