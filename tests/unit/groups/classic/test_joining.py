"""Who gets into a classic group, when, and as what."""

import pytest

from headrace.core.errors import ErrorCode
from headrace.groups.classic.group import State
from headrace.groups.settings import GroupSettings
from headrace.protocol.schemas.consumer_protocol import METADATA_ITEMS_MAX
from tests.support.classic_shard import SESSION_MS, ClassicShard, subscribed


def test_a_new_member_is_given_an_id_before_it_counts() -> None:
    world = ClassicShard()
    world.join("a")
    answer = world.joined("a")
    assert (answer.error_code, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a-id")
    assert not world.group.members
    world.advance(SESSION_MS)
    assert not world.group.pending_join_members


def test_an_old_client_is_taken_in_without_an_id() -> None:
    world = ClassicShard()
    world.join("a", version=3)
    world.advance(0)
    answer = world.joined("a")
    assert (answer.error_code, answer.member_id, answer.leader) == (0, "a-id", "a-id")
    assert [member.member_id for member in answer.members] == ["a-id"]


def test_an_unknown_id_is_refused() -> None:
    world = ClassicShard()
    world.join("a", "nobody")
    assert world.joined("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.shard.groups


def test_the_first_rebalance_waits_and_newcomers_prolong_it() -> None:
    world = ClassicShard(GroupSettings(initial_rebalance_delay_ms=3_000))
    world.enter("a")
    world.advance(2_000)
    world.enter("b")
    world.advance(1_000)
    assert "b" not in world.answers
    world.advance(2_999)
    assert world.group.state is State.PREPARING_REBALANCE
    world.advance(1)
    assert world.joined("a").generation_id == world.joined("b").generation_id == 1


def test_the_first_rebalance_is_not_prolonged_beyond_the_rebalance_timeout() -> None:
    world = ClassicShard(GroupSettings(initial_rebalance_delay_ms=3_000))
    world.join("a", version=3, rebalance_ms=7_000)
    for number in range(8):
        world.advance(1_000)
        world.join(f"b{number}", version=3, rebalance_ms=7_000)
    assert world.joined("a").generation_id == 1


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    world = ClassicShard(GroupSettings(initial_rebalance_delay_ms=10))
    both = (("x", b""), ("y", b""))
    world.join("a", version=3, protocols=both)
    world.join("b", version=3, protocols=tuple(reversed(both)))
    world.join("c", version=3, protocols=(*reversed(both), ("z", b"")))
    world.advance(20)
    assert {world.joined(each).protocol_name for each in "abc"} == {"y"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", (("range", b""),)), ("consumer", (("other", b""),)), ("consumer", ())],
)
def test_members_without_a_common_protocol_do_not_meet(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = ClassicShard()
    world.stable_pair()
    world.join("c", protocol_type=protocol_type, protocols=protocols)
    assert world.joined("c").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state is State.STABLE


def test_a_full_group_takes_nobody_else_but_keeps_its_members() -> None:
    world = ClassicShard(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    first, _ = world.stable_pair()
    world.join("c")
    assert world.joined("c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.join("a", first)
    assert world.group.state is State.PREPARING_REBALANCE


def test_a_follower_that_joins_again_unchanged_starts_no_rebalance() -> None:
    world = ClassicShard()
    _, second = world.stable_pair()
    world.join("b", second)
    answer = world.joined("b")
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 2, [])
    assert world.group.state is State.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.join("a", first)
    assert world.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join("b", second)
    assert world.joined("a").generation_id == 3


def test_a_member_with_other_topics_starts_a_rebalance() -> None:
    world = ClassicShard()
    _, second = world.stable_pair()
    world.join("b", second, protocols=(("range", subscribed("other")),))
    assert world.group.state is State.PREPARING_REBALANCE


def test_whoever_lost_the_answer_to_its_join_gets_it_again() -> None:
    world = ClassicShard()
    first = world.enter("a")
    world.advance(0)
    world.join("a again", first)
    assert world.joined("a again") == world.joined("a")
    assert world.group.generation == 1


def test_a_static_member_takes_its_old_place_without_a_rebalance() -> None:
    world = ClassicShard()
    old = world.enter("a", instance_id="i")
    world.advance(0)
    world.sync("a", {old: b"all"}, instance_id="i")
    world.join("b", instance_id="i")
    answer = world.joined("b")
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 1, True)
    assert answer.leader == answer.member_id == "b-id"
    world.sync("b", instance_id="i")
    assert world.synced("b").assignment == b"all"
    assert world.heartbeat(old, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert world.replayed().groups["g"].is_empty() is False


def test_an_older_client_that_comes_back_is_told_that_its_old_id_leads() -> None:
    world = ClassicShard()
    old = world.enter("a", instance_id="i")
    world.advance(0)
    world.sync("a", {old: b"all"}, instance_id="i")
    world.join("b", instance_id="i", version=8)
    answer = world.joined("b")
    assert (answer.leader, answer.member_id, answer.skip_assignment) == (old, "b-id", False)


def test_a_second_instance_fences_the_first_while_both_join() -> None:
    world = ClassicShard(GroupSettings(initial_rebalance_delay_ms=3_000))
    world.join("a", instance_id="i")
    world.join("b", instance_id="i")
    assert world.joined("a").error_code == ErrorCode.FENCED_INSTANCE_ID
    world.advance(3_000)
    assert world.joined("b").error_code == ErrorCode.NONE
    assert list(world.group.members) == ["b-id"]


@pytest.mark.parametrize(
    ("count", "read"), [(METADATA_ITEMS_MAX, {"t"}), (METADATA_ITEMS_MAX + 1, None)]
)
def test_a_subscription_to_more_topics_than_anybody_has_is_not_read(
    count: int, read: set[str] | None
) -> None:
    world = ClassicShard()
    world.join("a", version=3, protocols=(("range", subscribed(*["t"] * count)),))
    world.advance(0)
    assert world.group.state is State.COMPLETING_REBALANCE
    assert world.group.subscribed_topics == read
