"""Broker-side assignors, by example; tests/property holds what is true of all inputs."""

from uuid import UUID

import pytest

from headrace.groups.consumer.assignors import ASSIGNORS
from headrace.groups.consumer.assignors.model import (
    MemberSpec,
    Partitions,
    TopicIdPartition,
    TopicSpec,
)
from tests.support.cpu_time import cpu_time

A, B = UUID(int=1), UUID(int=2)
# Seconds that need no further look.
PLAINLY_QUICK = 0.5


def topics(**counts: int) -> dict[UUID, TopicSpec]:
    ids = {"a": A, "b": B}
    return {ids[name]: TopicSpec(ids[name], name, count) for name, count in counts.items()}


def members(*names: str, reads: tuple[UUID, ...] = (A,)) -> list[MemberSpec]:
    return [MemberSpec(name, frozenset(reads)) for name in names]


def having(member: MemberSpec, parts: dict[str, Partitions]) -> MemberSpec:
    previous = parts.get(member.member_id, frozenset())
    return MemberSpec(member.member_id, member.topics, previous, member.instance_id)


def numbers(part: Partitions, topic_id: UUID = A) -> list[int]:
    return sorted(partition for topic, partition in part if topic == topic_id)


def test_uniform_takes_from_everybody_just_what_a_newcomer_needs() -> None:
    parts = ASSIGNORS["uniform"](members("m1", "m2"), topics(a=6))
    three = [having(member, parts) for member in members("m1", "m2", "m3")]
    after = ASSIGNORS["uniform"](three, topics(a=6))
    assert sorted(map(len, after.values())) == [2, 2, 2]
    assert after["m1"] < parts["m1"]
    assert after["m2"] < parts["m2"]


def test_uniform_leaves_the_survivors_what_they_had() -> None:
    parts = ASSIGNORS["uniform"](members("m1", "m2", "m3"), topics(a=7))
    two = [having(member, parts) for member in members("m1", "m3")]
    after = ASSIGNORS["uniform"](two, topics(a=7))
    assert parts["m1"] <= after["m1"]
    assert parts["m3"] <= after["m3"]
    assert sorted(map(len, after.values())) == [3, 4]


def test_uniform_hands_partitions_on_over_a_member_in_between() -> None:
    """m1 reads only a, m3 only b; m2 reads both and holds b: it gives b away and takes a."""
    had = {
        "m1": frozenset(TopicIdPartition(A, n) for n in range(4)),
        "m2": frozenset(TopicIdPartition(B, n) for n in range(2)),
    }
    group = [
        MemberSpec("m1", frozenset({A}), had["m1"]),
        MemberSpec("m2", frozenset({A, B}), had["m2"]),
        MemberSpec("m3", frozenset({B})),
    ]
    after = ASSIGNORS["uniform"](group, topics(a=4, b=2))
    assert {name: len(part) for name, part in after.items()} == {"m1": 2, "m2": 2, "m3": 2}


def test_uniform_forgets_partitions_of_a_topic_that_is_gone() -> None:
    group = [MemberSpec("m1", frozenset({A}), frozenset({TopicIdPartition(B, 0)}))]
    assert numbers(ASSIGNORS["uniform"](group, topics(a=2))["m1"]) == [0, 1]


def test_range_gives_the_same_numbers_of_equal_topics_to_one_member() -> None:
    parts = ASSIGNORS["range"](members("m1", "m2", reads=(A, B)), topics(a=5, b=5))
    assert numbers(parts["m1"], A) == numbers(parts["m1"], B) == [0, 1, 2]
    assert numbers(parts["m2"], A) == numbers(parts["m2"], B) == [3, 4]


def test_range_lets_a_newcomer_stand_at_the_end_of_the_line() -> None:
    parts = ASSIGNORS["range"](members("m5", "m6"), topics(a=6))
    three = [having(member, parts) for member in members("m1", "m5", "m6")]
    after = ASSIGNORS["range"](three, topics(a=6))
    assert numbers(after["m5"]) == [0, 1]
    assert numbers(after["m6"]) == [2, 3]
    assert numbers(after["m1"]) == [4, 5]


def test_range_leaves_members_without_work_where_there_are_too_many() -> None:
    parts = ASSIGNORS["range"](members("m1", "m2", "m3"), topics(a=2))
    assert [numbers(parts[name]) for name in ("m1", "m2", "m3")] == [[0], [1], []]


def test_roundrobin_deals_in_the_order_of_topics_and_numbers() -> None:
    parts = ASSIGNORS["roundrobin"](members("m1", "m2", reads=(A, B)), topics(a=3, b=2))
    assert (numbers(parts["m1"], A), numbers(parts["m1"], B)) == ([0, 2], [1])
    assert (numbers(parts["m2"], A), numbers(parts["m2"], B)) == ([1], [0])


def test_roundrobin_skips_members_that_do_not_read_the_topic() -> None:
    group = [MemberSpec("m1", frozenset({A})), MemberSpec("m2", frozenset({A, B}))]
    parts = ASSIGNORS["roundrobin"](group, topics(a=2, b=2))
    assert numbers(parts["m2"], B) == [0, 1]
    assert numbers(parts["m1"], B) == []


def test_a_static_member_keeps_its_place_under_another_member_id() -> None:
    before = [MemberSpec("x", frozenset({A}), instance_id="i1"), *members("m2")]
    after = [MemberSpec("z", frozenset({A}), instance_id="i1"), *members("m2")]
    for name in ("range", "roundrobin"):
        old, new = ASSIGNORS[name](before, topics(a=3)), ASSIGNORS[name](after, topics(a=3))
        assert old["x"] == new["z"]
        assert old["m2"] == new["m2"]


def test_a_topic_without_readers_is_given_to_nobody() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor(members("m1"), topics(a=1, b=1))["m1"] == {TopicIdPartition(A, 0)}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("shape", ["a second member", "topics of their own"])
def test_the_cost_grows_with_what_is_assigned_not_with_its_square(name: str, shape: str) -> None:
    """The broker assigns on its event loop. CPU time, so that a busy machine changes nothing."""

    def seconds(size: int) -> float:
        if shape == "a second member":
            read = {A: TopicSpec(A, "a", 10 * size)}
            has = frozenset(TopicIdPartition(A, number) for number in range(10 * size))
            group = [MemberSpec("m1", frozenset({A}), has), MemberSpec("m2", frozenset({A}))]
        else:
            ids = [UUID(int=number + 1) for number in range(size)]
            read = {each: TopicSpec(each, f"t{each.int:09}", 10) for each in ids}
            # In another order than the members stand in.
            group = [
                MemberSpec(f"m{number:09}", frozenset({ids[number * 7 % size]}))
                for number in range(size)
            ]
        with cpu_time() as taken:
            parts = ASSIGNORS[name](group, read)
            took = taken()
        assert sum(map(len, parts.values())) == 10 * size
        return took

    many = seconds(2_000)
    if many > PLAINLY_QUICK:
        few = seconds(200)
        assert many < 30 * few, f"{few:.4f} s, {many:.4f} s"
