"""`uniform`: as even as the subscriptions allow, and as little moved as that allows.

Everybody first keeps what it had. What nobody has goes to the reader with the least. Then
partitions move from fuller members to emptier ones, also over members in between: if A may
give to B and B to C, one partition of each moves and only A and C change in number. When no
such chain from a member to one that has at least two fewer is left, no assignment is more even
(Harvey, Ladner, Lovász, Tamir: semi-matchings for bipartite graphs and load balancing, 2003).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
    readers_of,
)


def assign_uniform(
    members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]
) -> dict[str, Partitions]:
    """Balance the partitions of `topics` over the members who read them."""
    return _Balancing(members, topics).run()


class _Step(NamedTuple):
    """How the search came to a member: from whom, and with which topic."""

    giver: str
    topic_id: UUID


class _Share:
    """What a member has of one topic; the highest number is the first to go.

    What it has had before goes last. Nothing is searched, whatever the number of partitions.
    """

    __slots__ = ("_before", "_fresh")

    def __init__(self) -> None:
        # Heaps of negative numbers.
        self._before: list[int] = []
        self._fresh: list[int] = []

    def __len__(self) -> int:
        return len(self._before) + len(self._fresh)

    def __iter__(self) -> Iterator[int]:
        return (-number for numbers in (self._before, self._fresh) for number in numbers)

    def add(self, partition: int, had_before: bool) -> None:
        heappush(self._before if had_before else self._fresh, -partition)

    def take(self) -> int:
        return -heappop(self._fresh or self._before)


class _Balancing:
    def __init__(self, members: Sequence[MemberSpec], topics: Mapping[UUID, TopicSpec]) -> None:
        ordered = sorted(members, key=lambda member: member.name)
        self._topics = topics
        self._previous = {member.member_id: member.previous for member in ordered}
        self._load = {member.member_id: 0 for member in ordered}
        readers = readers_of(ordered, topics)
        self._readers: dict[UUID, list[str]] = {
            topic_id: [ordered[place].member_id for place in readers[topic_id]]
            for topic_id in sorted(topics, key=lambda topic_id: topics[topic_id].name)
        }
        # By member and topic.
        self._owned: dict[str, dict[UUID, _Share]] = {member.member_id: {} for member in ordered}

    def run(self) -> dict[str, Partitions]:
        free = self._keep()
        for topic_id in sorted(self._readers, key=lambda topic_id: len(self._readers[topic_id])):
            self._deal(topic_id, free[topic_id])
        while self._improve():
            pass
        return {
            member_id: frozenset(
                TopicIdPartition(topic_id, partition)
                for topic_id, partitions in owned.items()
                for partition in partitions
            )
            for member_id, owned in self._owned.items()
        }

    def _keep(self) -> dict[UUID, list[int]]:
        """Give everybody what it had and may still have; return what is left over."""
        free = {
            topic_id: dict.fromkeys(range(self._topics[topic_id].partitions))
            for topic_id in self._readers
        }
        readers = {topic_id: frozenset(ids) for topic_id, ids in self._readers.items()}
        for member_id, previous in self._previous.items():
            for topic_id, partition in previous:
                if member_id in readers.get(topic_id, ()) and partition in free[topic_id]:
                    del free[topic_id][partition]
                    self._give(member_id, topic_id, partition)
        return {topic_id: list(partitions) for topic_id, partitions in free.items()}

    def _deal(self, topic_id: UUID, partitions: Iterable[int]) -> None:
        by_load = [
            (self._load[member_id], place, member_id)
            for place, member_id in enumerate(self._readers[topic_id])
        ]
        if not by_load:
            return
        heapify(by_load)
        for partition in partitions:
            load, place, member_id = heappop(by_load)
            self._give(member_id, topic_id, partition)
            heappush(by_load, (load + 1, place, member_id))

    def _improve(self) -> bool:
        """Move partitions off members that are too full, the fullest first; False if none is."""
        moved = False
        fullest = [(-load, member_id) for member_id, load in self._load.items()]
        heapify(fullest)
        while fullest:
            load, source = heappop(fullest)
            # Nobody can be two emptier than a member this close to the least loaded one.
            if -load <= min(self._load.values()) + 1:
                break
            chain = self._chain_from(source)
            for giver, topic_id, taker in chain:
                self._move(giver, topic_id, taker)
                moved = True
            if chain:
                # Those in between gave as much as they took; the last one is among the emptier.
                heappush(fullest, (-self._load[source], source))
        return moved

    def _chain_from(self, source: str) -> list[tuple[str, UUID, str]]:
        """The shortest way to hand one partition on to a member with two or more fewer."""
        reached: dict[str, _Step] = {}
        topics_seen: set[UUID] = set()
        line = deque([source])
        while line:
            giver = line.popleft()
            for topic_id in self._owned[giver]:
                if topic_id in topics_seen:
                    continue
                topics_seen.add(topic_id)
                for taker in self._readers[topic_id]:
                    if taker == source or taker in reached:
                        continue
                    reached[taker] = _Step(giver, topic_id)
                    line.append(taker)
                takers = [
                    taker
                    for taker in self._readers[topic_id]
                    if self._load[taker] <= self._load[source] - 2
                ]
                if takers:
                    return _chain(reached, source, min(takers, key=self._load.__getitem__))
        return []

    def _give(self, member_id: str, topic_id: UUID, partition: int) -> None:
        share = self._owned[member_id].get(topic_id)
        if share is None:
            share = self._owned[member_id][topic_id] = _Share()
        had_before = TopicIdPartition(topic_id, partition) in self._previous[member_id]
        share.add(partition, had_before)
        self._load[member_id] += 1

    def _move(self, giver: str, topic_id: UUID, taker: str) -> None:
        """Hand one partition over: one that the giver did not have before, where there is one."""
        share = self._owned[giver][topic_id]
        partition = share.take()
        if not share:
            del self._owned[giver][topic_id]
        self._load[giver] -= 1
        self._give(taker, topic_id, partition)


def _chain(reached: Mapping[str, _Step], source: str, last: str) -> list[tuple[str, UUID, str]]:
    chain: list[tuple[str, UUID, str]] = []
    taker = last
    while taker != source:
        giver, topic_id = reached[taker]
        chain.append((giver, topic_id, taker))
        taker = giver
    return chain
