"""From generation to generation: timeouts, leaders, shares, and those who leave."""

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from tests.support.classic_shard import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicShard,
    subscribed,
)


def test_followers_get_their_shares_when_the_leader_has_assigned() -> None:
    world = ClassicShard()
    world.stable_pair()
    assert (world.synced("a").assignment, world.synced("b").assignment) == (b"one", b"two")
    assert world.synced("b").protocol_name == "range"


def test_a_share_can_be_asked_for_again() -> None:
    world = ClassicShard()
    world.stable_pair()
    world.sync("b")
    assert world.synced("b").assignment == b"two"


def test_a_member_that_was_forgotten_gets_an_empty_share() -> None:
    world = ClassicShard()
    first, _ = world.stable_pair()
    world.join("a", first)
    world.join("b", "b-id")
    world.sync("b")
    world.sync("a", {first: b"everything"})
    assert world.synced("b").assignment == b""


@pytest.mark.parametrize(
    ("member_id", "generation", "code"),
    [
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.ILLEGAL_GENERATION),
        (None, 3, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_sync_from_outside_the_generation_is_refused(
    member_id: str | None, generation: int | None, code: ErrorCode
) -> None:
    world = ClassicShard()
    world.stable_pair()
    with pytest.raises(ApiError) as refused:
        world.sync("b", member_id=member_id, generation=generation)
    assert refused.value.code is code


def test_a_join_sets_free_whoever_waits_for_a_share() -> None:
    world = ClassicShard()
    _, second = world.stable_pair()
    world.join("a", "a-id")
    world.join("b", second)
    world.sync("b")
    world.enter("c")
    assert world.synced("b").error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_missed_after_its_session() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(first) is ErrorCode.NONE
    world.advance(1)
    assert second not in world.group.members
    assert world.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_that_falls_silent_leaves_an_empty_group() -> None:
    world = ClassicShard()
    world.stable_pair()
    world.advance(SESSION_MS)
    assert world.group.state is State.EMPTY
    restored = world.replayed().groups["g"]
    assert isinstance(restored, ClassicGroup)
    assert (restored.state, restored.generation) == (State.EMPTY, world.group.generation)


def test_a_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.join("a", first)
    for _ in range(REBALANCE_MS // 5_000):
        world.advance(5_000)
        if second in world.group.members:
            world.heartbeat(second)
    assert world.joined("a").generation_id == 3
    assert list(world.group.members) == [first]


def test_a_static_member_may_be_late_for_a_rebalance() -> None:
    world = ClassicShard()
    static = world.enter("s", instance_id="i")
    world.advance(0)
    world.sync("s", {static: b"all"}, instance_id="i")
    world.enter("d")
    for _ in range(REBALANCE_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(static, instance_id="i")
    assert world.joined("d").error_code == ErrorCode.NONE
    assert static in world.group.members
    assert world.joined("d").leader == "d-id"


def test_a_member_that_never_syncs_is_dropped() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.join("a", first)
    world.join("b", second)
    world.sync("a", {first: b"1", second: b"2"})
    for _ in range(REBALANCE_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(first)
        if second in world.group.members:
            world.heartbeat(second)
    assert second not in world.group.members


def test_another_member_leads_when_the_leader_has_gone() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    assert world.leave((first, None)) == [0]
    world.join("b", second)
    answer = world.joined("b")
    assert (answer.leader, [each.member_id for each in answer.members]) == (second, [second])


def test_several_leave_at_once_and_each_is_told_its_own_outcome() -> None:
    world = ClassicShard()
    first, _ = world.stable_pair()
    world.join("c")
    static = world.enter("s", instance_id="i")
    assert static == "s-id"
    outcomes = world.leave(
        (first, None), ("nobody", None), ("", "i"), ("", "other"), ("c-id", None), ("x", "i")
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert outcomes == [0, unknown, 0, unknown, 0, unknown]
    assert list(world.group.members) == ["b-id"]


def test_whoever_is_removed_while_it_waits_is_told_to_come_in_anew() -> None:
    world = ClassicShard()
    world.stable_pair()
    world.join("a", "a-id")
    world.leave(("a-id", None))
    assert world.joined("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_brings_back_members_generation_and_shares() -> None:
    world = ClassicShard()
    world.stable_pair()
    restored = world.replayed().groups["g"]
    assert isinstance(restored, ClassicGroup)
    assert restored.record() == world.group.record()
    assert restored.members["b-id"].assignment == b"two"
    restored.loaded(world.now_ms)
    assert restored.next_deadline_ms() == world.now_ms + SESSION_MS


def test_a_group_knows_which_topics_it_reads() -> None:
    world = ClassicShard()
    world.join("a", version=3, protocols=(("range", subscribed("one", "two")),))
    world.advance(0)
    assert world.group.is_subscribed_to("two")
    assert not world.group.is_subscribed_to("three")


def test_a_group_whose_metadata_nobody_can_read_counts_as_reading_anything() -> None:
    world = ClassicShard()
    world.join("a", version=3, protocols=(("own", b"?"),))
    world.advance(0)
    assert world.group.is_subscribed_to("anything")
