"""`range`: every member gets one stretch of each topic it reads.

Members stand in one order for all topics. Where they all read the same topics and these have
as many partitions, partition n of each topic goes to the same member, which is what a join of
two topics needs. The order follows the stretches held before, so that a member who joins or
leaves shifts borders but does not shuffle the line.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
    readers_of,
)


def assign_ranges(
    members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]
) -> dict[str, Partitions]:
    """Cut each topic into as many stretches as it has readers; the first ones are longer by one."""
    line = sorted(members, key=_place)
    parts: dict[str, list[TopicIdPartition]] = {member.member_id: [] for member in members}
    for topic_id, readers in readers_of(line, topics).items():
        if not readers:
            continue
        topic = topics[topic_id]
        size, longer = divmod(topic.partitions, len(readers))
        start = 0
        for number, place in enumerate(readers):
            end = start + size + (number < longer)
            parts[line[place].member_id] += (
                TopicIdPartition(topic.id, n) for n in range(start, end)
            )
            start = end
    return {member_id: frozenset(part) for member_id, part in parts.items()}


def _place(member: MemberSpec) -> tuple[bool, int, str]:
    """Who held something stands where it held it; newcomers follow, in the order of names."""
    first = min((partition.partition for partition in member.previous), default=None)
    return (first is None, 0 if first is None else first, member.name)
