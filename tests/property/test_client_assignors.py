"""How a classic leader divides, for any group hypothesis can think of."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.core.assignors import (
    ASSIGN,
    Assignments,
    JoinedMember,
    assign_cooperative_sticky,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from headrace.core.ids import TopicPartition

TOPICS = ("a", "b", "c")
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
wishes = st.frozensets(st.sampled_from([*TOPICS, "missing"]))


@st.composite
def groups(draw: st.DrawFn, *, same_topics: bool = False) -> list[JoinedMember]:
    """Members with any wishes, and claims that may be old, shared, or of topics long gone."""
    count = draw(st.integers(1, 6))
    shared = draw(wishes)
    partition = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 14))
    return [
        JoinedMember(
            member_id=f"m{number}",
            topics=shared if same_topics else draw(wishes),
            instance_id=draw(st.sampled_from([None, f"i{9 - number}"])),
            owned=tuple(draw(st.lists(partition, max_size=12))),
            generation=draw(st.integers(-1, 3)),
        )
        for number in range(count)
    ]


def check_owners(
    counts: dict[str, int], members: Sequence[JoinedMember], shares: Assignments
) -> None:
    """Everything somebody wants has one owner, who wants it; nothing else has any."""
    assert set(shares) == {member.member_id for member in members}
    owners = Counter(each for share in shares.values() for each in share)
    wanted = {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        for number in range(count)
        if any(topic in member.topics for member in members)
    }
    assert dict(owners) == dict.fromkeys(wanted, 1)
    topics = {member.member_id: member.topics for member in members}
    assert all(each.topic in topics[name] for name, share in shares.items() for each in share)


@pytest.mark.parametrize("assign", [assign_range, assign_roundrobin, assign_sticky])
@given(counts=counts_of_topics, members=groups())
def test_every_partition_has_one_owner_who_wants_it(
    assign: object, counts: dict[str, int], members: list[JoinedMember]
) -> None:
    assert callable(assign)
    check_owners(counts, members, assign(counts, members))


@pytest.mark.parametrize("assign", [assign_roundrobin, assign_sticky])
@given(counts=counts_of_topics, members=groups(same_topics=True))
def test_members_with_the_same_wishes_get_shares_that_differ_by_one_at_most(
    assign: object, counts: dict[str, int], members: list[JoinedMember]
) -> None:
    assert callable(assign)
    sizes = [len(share) for share in assign(counts, members).values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts=counts_of_topics, members=groups(same_topics=True))
def test_range_is_even_within_each_topic_and_consecutive(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    for topic in counts:
        numbers = [
            [each.partition for each in share if each.topic == topic]
            for share in assign_range(counts, members).values()
        ]
        assert max(map(len, numbers)) - min(map(len, numbers)) <= 1
        assert all(each == list(range(each[0], each[0] + len(each))) for each in numbers if each)


@given(counts=counts_of_topics, members=groups())
def test_no_single_move_would_make_a_sticky_division_more_even(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    shares = assign_sticky(counts, members)
    for giver, share in shares.items():
        for partition in share:
            for taker in members:
                if partition.topic in taker.topics:
                    assert len(share) - len(shares[taker.member_id]) < 2, (giver, taker)


@given(counts=counts_of_topics, members=groups())
def test_a_sticky_division_that_is_in_force_is_not_changed(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    shares = assign_sticky(counts, members)
    assert assign_sticky(counts, _owning(members, shares, 7)) == shares


@given(counts=counts_of_topics, members=groups(same_topics=True), leaver=st.integers(0, 5))
def test_when_a_member_leaves_nobody_else_gives_anything_up(
    counts: dict[str, int], members: list[JoinedMember], leaver: int
) -> None:
    before = assign_sticky(counts, members)
    left = [each for index, each in enumerate(members) if index != leaver % len(members)]
    after = assign_sticky(counts, _owning(left, before, 7))
    assert all(set(before[each.member_id]) <= set(after[each.member_id]) for each in left)


@given(counts=counts_of_topics, members=groups(same_topics=True))
def test_a_newcomer_takes_no_more_than_its_share_and_the_others_take_nothing(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    before = assign_sticky(counts, members)
    newcomer = JoinedMember("new", members[0].topics)
    after = assign_sticky(counts, [*_owning(members, before, 7), newcomer])
    for member in members:
        assert set(after[member.member_id]) <= set(before[member.member_id])
    sizes = [len(share) for share in after.values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts=counts_of_topics, members=groups())
def test_cooperative_members_never_get_what_another_still_claims(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    shares = assign_cooperative_sticky(counts, members)
    for member in members:
        claimed = {each for other in members if other is not member for each in other.owned}
        assert not claimed & set(shares[member.member_id])


@given(counts=counts_of_topics, members=groups())
def test_two_more_cooperative_rounds_reach_the_whole_division(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    for generation in (7, 8):
        shares = assign_cooperative_sticky(counts, members)
        members = _owning(members, shares, generation)
    shares = assign_cooperative_sticky(counts, members)
    check_owners(counts, members, shares)
    assert all(set(each.owned) == set(shares[each.member_id]) for each in members)


@pytest.mark.parametrize("name", ASSIGN)
def test_a_static_member_that_comes_back_gets_what_it_had(name: str) -> None:
    counts = {"a": 5}

    def assign(first_id: str) -> set[TopicPartition]:
        members = [
            JoinedMember(first_id, frozenset("a"), instance_id="one"),
            JoinedMember("m", frozenset("a"), instance_id="two"),
            JoinedMember("k", frozenset("a")),
        ]
        return set(ASSIGN[name](counts, members)[first_id])

    assert assign("aaa") == assign("zzz")


def _owning(
    members: Sequence[JoinedMember], shares: Assignments, generation: int
) -> list[JoinedMember]:
    return [
        JoinedMember(
            each.member_id, each.topics, each.instance_id, tuple(shares[each.member_id]), generation
        )
        for each in members
    ]
