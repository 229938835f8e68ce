"""Consumer groups: whatever members, topics and time do, a partition has one owner at most.

Scripts of joins, leaves, crashes, lost answers, slow revocations, topic changes and restarts of
the coordinator run against the pure shard; when they end and members go on heartbeating, every
partition has an owner and everybody is at the target.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ApiError
from headrace.groups.consumer.assignors import ASSIGNORS
from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
)
from tests.support.consumer_groups import GROUP, Client, Coordinator, settle

TOPICS = ("apples", "beans", "carrots")
PATTERNS = (None, ".*s", "b.*", "nothing")


class World:
    """A coordinator and its clients, moved by numbers that hypothesis chooses."""

    def __init__(self, assignor: str | None) -> None:
        self.coordinator = Coordinator()
        self.assignor = assignor
        self.clients: list[Client] = []
        self.names = 0
        for topic in TOPICS[:2]:
            self.coordinator.set_topic(topic, 4)

    def run(self, script: Iterable[tuple[int, int, int]]) -> None:
        likely = (self.join, self.beat, self.beat_and_obey, self.obey, self.everybody_beats)
        moves = (
            *(move for move in likely for _ in range(4)),
            self.beat_unheard,
            self.leave,
            self.crash,
            self.resubscribe,
            self.static_restart,
            self.wait,
            self.change_topic,
            self.restart,
        )
        for move, a, b in script:
            moves[move % len(moves)](a, b)
            self.check()

    def pick(self, number: int) -> Client | None:
        return self.clients[number % len(self.clients)] if self.clients else None

    def join(self, a: int, b: int) -> None:
        self.names += 1
        client = Client(f"member-{self.names}", assignor=self.assignor)
        if a % 4 == 0:
            client.instance_id = f"instance-{self.names}"
        self.choose_topics(client, a, b)
        self.clients.append(client)
        client.beat(self.coordinator)

    def choose_topics(self, client: Client, a: int, b: int) -> None:
        if b % 3:
            client.subscribe(list(TOPICS))
        else:
            client.subscribe([t for i, t in enumerate(TOPICS) if a >> i & 1], PATTERNS[b % 4])

    def beat(self, a: int, _: int) -> None:
        if client := self.pick(a):
            client.beat(self.coordinator)

    def beat_and_obey(self, a: int, _: int) -> None:
        if client := self.pick(a):
            client.beat(self.coordinator)
            client.reconcile()

    def beat_unheard(self, a: int, _: int) -> None:
        if client := self.pick(a):
            client.beat(self.coordinator, answer_lost=True)

    def obey(self, a: int, _: int) -> None:
        if client := self.pick(a):
            client.reconcile()

    def everybody_beats(self, a: int, _: int) -> None:
        for client in self.clients:
            client.beat(self.coordinator)
            if a % 2:
                client.reconcile()
        self.coordinator.advance(200)

    def leave(self, a: int, _: int) -> None:
        if client := self.pick(a):
            if client.epoch > 0:
                # A member that was removed meanwhile leaves in vain.
                try:
                    client.leave(self.coordinator)
                except ApiError:
                    client.drop()
            self.clients.remove(client)

    def crash(self, a: int, _: int) -> None:
        if client := self.pick(a):
            self.clients.remove(client)

    def resubscribe(self, a: int, b: int) -> None:
        if client := self.pick(a):
            self.choose_topics(client, b, a)
            client.beat(self.coordinator)

    def static_restart(self, a: int, _: int) -> None:
        static = [client for client in self.clients if client.instance_id and client.epoch > 0]
        if not static:
            return
        client = static[a % len(static)]
        try:
            client.leave(self.coordinator, -2)
        except ApiError:
            client.drop()
        self.names += 1
        client.member_id = f"member-{self.names}"
        client.beat(self.coordinator)

    def wait(self, a: int, _: int) -> None:
        self.coordinator.advance((1_000, 20_000, 50_000)[a % 3])

    def change_topic(self, a: int, b: int) -> None:
        name = TOPICS[a % len(TOPICS)]
        known = self.coordinator.image.topics.get(name)
        if known is not None and b % 3 == 0:
            self.coordinator.delete_topic(name)
        else:
            self.coordinator.set_topic(name, b % 5 + (len(known.partitions) if known else 1))

    def restart(self, _: int, __: int) -> None:
        self.coordinator.restart()

    # What must hold

    def check(self) -> None:
        coordinator = self.coordinator
        assert coordinator.restarted.groups == coordinator.shard.groups
        if GROUP not in coordinator.shard.groups:
            return
        group = coordinator.group
        held = Counter(
            partition
            for member in group.members.values()
            for partition in {**member.assigned, **member.pending_revocation}
        )
        assert all(count == 1 for count in held.values()), "the coordinator gave one away twice"
        believed = Counter(
            partition
            for client in self.clients
            if client.member_id in group.members and client.epoch > 0
            for partition in client.owned
        )
        assert all(count == 1 for count in believed.values()), "two members believe to own it"
        targets = Counter(partition for part in group.target.values() for partition in part)
        assert all(count == 1 for count in targets.values())

    def check_settled(self) -> None:
        group = self.coordinator.group
        assert group.state_name() == ("Stable" if self.clients else "Empty")
        subscribed: set[str] = set()
        for client in self.clients:
            member = group.members[client.member_id]
            topics = group.topics_of(member)
            subscribed |= topics
            assert client.epoch == member.epoch == group.assignment_epoch == group.epoch
            assert client.owned == member.assigned.keys() == group.target[client.member_id]
            assert client.owned <= self.coordinator.partitions_of(topics)
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned))
        assert set(owned) == self.coordinator.partitions_of(subscribed)
        assert group.owners.keys() == set(owned)
        same = {(tuple(client.topics), client.regex) for client in self.clients}
        if len(same) == 1 and self.assignor != "range":
            counts = [len(client.owned) for client in self.clients]
            assert max(counts) - min(counts) <= 1


scripts = st.lists(
    st.tuples(st.integers(0, 27), st.integers(0, 59), st.integers(0, 59)), min_size=25, max_size=60
)


@pytest.mark.parametrize("assignor", [None, *ASSIGNORS])
@given(script=scripts)
def test_a_partition_never_has_two_owners_and_in_the_end_has_one(
    assignor: str | None, script: list[tuple[int, int, int]]
) -> None:
    world = World(assignor)
    world.run(script)
    # Those who crashed are forgotten, those who live keep their sessions.
    for _ in range(10):
        world.coordinator.advance(10_000)
        for client in world.clients:
            client.beat(world.coordinator)
            client.reconcile()
        world.check()
    if GROUP in world.coordinator.shard.groups:
        settle(world.coordinator, world.clients)
        world.check_settled()


members_and_topics = st.tuples(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.lists(st.integers(1, 15), min_size=1, max_size=8),
)


def _specs(
    counts: list[int], readers: list[int], previous: dict[str, Partitions]
) -> tuple[list[MemberSpec], dict[UUID, TopicSpec]]:
    topics = {
        UUID(int=n + 1): TopicSpec(UUID(int=n + 1), f"topic-{n}", count)
        for n, count in enumerate(counts)
    }
    members = [
        MemberSpec(
            f"member-{n}",
            frozenset(topic_id for topic_id in topics if reads >> (topic_id.int - 1) & 1),
            previous.get(f"member-{n}", frozenset()),
        )
        for n, reads in enumerate(readers)
    ]
    return members, topics


def _check_complete(
    parts: dict[str, Partitions], members: list[MemberSpec], topics: dict[UUID, TopicSpec]
) -> None:
    assert parts.keys() == {member.member_id for member in members}
    given = [partition for part in parts.values() for partition in part]
    assert len(given) == len(set(given))
    read = {topic_id for member in members for topic_id in member.topics}
    assert set(given) == {
        TopicIdPartition(topic_id, n)
        for topic_id in read
        for n in range(topics[topic_id].partitions)
    }
    for member in members:
        assert {partition.topic_id for partition in parts[member.member_id]} <= member.topics


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(shape=members_and_topics, later=members_and_topics)
def test_every_assignor_gives_each_partition_to_one_of_its_readers(
    name: str,
    shape: tuple[list[int], list[int]],
    later: tuple[list[int], list[int]],
) -> None:
    members, topics = _specs(*shape, {})
    parts = ASSIGNORS[name](members, topics)
    _check_complete(parts, members, topics)
    members, topics = _specs(*later, parts)
    _check_complete(ASSIGNORS[name](members, topics), members, topics)


@given(shape=members_and_topics, later=members_and_topics)
def test_uniform_leaves_no_single_move_that_would_make_it_more_even(
    shape: tuple[list[int], list[int]], later: tuple[list[int], list[int]]
) -> None:
    members, topics = _specs(*shape, {})
    members, topics = _specs(*later, ASSIGNORS["uniform"](members, topics))
    parts = ASSIGNORS["uniform"](members, topics)
    for giver in members:
        for taker in members:
            movable = any(p.topic_id in taker.topics for p in parts[giver.member_id])
            if movable:
                difference = len(parts[giver.member_id]) - len(parts[taker.member_id])
                assert difference <= 1


@given(partitions=st.integers(1, 60), counts=st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_uniform_moves_no_more_than_evenness_asks_for(partitions: int, counts: list[int]) -> None:
    parts: dict[str, Partitions] = {}
    for before, after in pairwise(counts):
        members, topics = _specs([partitions], [1] * before, parts)
        parts = ASSIGNORS["uniform"](members, topics)
        members, topics = _specs([partitions], [1] * after, parts)
        new = ASSIGNORS["uniform"](members, topics)
        moved = sum(
            len(part - new.get(member_id, frozenset())) for member_id, part in parts.items()
        )
        size, longer = divmod(partitions, after)
        quotas = sorted([size + 1] * longer + [size] * (after - longer), reverse=True)
        staying = sorted(
            (len(parts[f"member-{n}"]) for n in range(min(before, after))), reverse=True
        )
        kept = sum(min(had, quota) for had, quota in zip(staying, quotas, strict=False))
        assert moved == partitions - kept
        parts = new
