"""ConsumerGroupHeartbeat: what one heartbeat does to the group and says to the member."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.members import MemberState
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.consumer_groups import GROUP, Client, Coordinator, owned_topics, settle


def joined(coordinator: Coordinator, *names: str, **fields: Any) -> list[Client]:
    clients = [Client(name, ["t"], **fields) for name in names]
    for client in clients:
        client.beat(coordinator)
    return clients


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.set_topic("t", 4)
    return made


def refused(coordinator: Coordinator, client: Client, **fields: Any) -> ApiError:
    request = client.request()
    for name, value in fields.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as caught:
        coordinator.heartbeat(request)
    return caught.value


# Joining and moving partitions


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    (only,) = joined(coordinator, "m1")
    assert len(only.target) == 4
    assert only.epoch == coordinator.group.epoch == 2
    assert coordinator.group.state_name() == "Stable"


def test_a_partition_changes_hands_only_after_its_owner_gave_it_up(
    coordinator: Coordinator,
) -> None:
    (old,) = joined(coordinator, "m1")
    old.reconcile()
    old.beat(coordinator)
    (new,) = joined(coordinator, "m2")
    assert new.target == set()
    assert coordinator.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS

    old.beat(coordinator)
    assert len(old.target) == 2
    assert coordinator.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert old.epoch == 2, "it stays in its epoch until it has given up what it should"
    old.beat(coordinator)  # says nothing about its partitions, so nothing is given up
    new.beat(coordinator)
    assert new.target == set()

    old.reconcile()
    old.beat(coordinator)
    assert old.epoch == 3
    new.beat(coordinator)
    assert len(new.target) == 2
    assert new.target.isdisjoint(old.owned)
    assert coordinator.group.state_name() == "Stable"


def test_the_answer_carries_the_assignment_only_when_it_is_news(coordinator: Coordinator) -> None:
    (member,) = joined(coordinator, "m1")
    member.reconcile()
    assert coordinator.heartbeat(member.request()).assignment is None
    full = replace_fields(
        member.request(), rebalance_timeout_ms=60_000, subscribed_topic_names=["t"]
    )
    assert coordinator.heartbeat(full).assignment is not None


def replace_fields(
    request: ConsumerGroupHeartbeatRequest, **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_what_a_leaver_owned_is_free_at_once(coordinator: Coordinator) -> None:
    first, second = joined(coordinator, "m1", "m2")
    settle(coordinator, [first, second])
    first.leave(coordinator)
    second.beat(coordinator)
    assert len(second.target) == 4


def test_a_member_with_another_subscription_moves_the_group(coordinator: Coordinator) -> None:
    coordinator.set_topic("u", 2)
    (member,) = joined(coordinator, "m1")
    member.subscribe(["t", "u"])
    member.beat(coordinator)
    assert coordinator.group.epoch == 3
    assert len(member.target) == 6


def test_topics_that_grow_appear_and_vanish_move_the_group(coordinator: Coordinator) -> None:
    (member,) = joined(coordinator, "m1")
    member.reconcile()
    coordinator.set_topic("t", 6)
    member.beat(coordinator)
    assert len(member.target) == 6
    member.reconcile()
    coordinator.delete_topic("t")
    settle(coordinator, [member])
    assert member.owned == set()
    coordinator.set_topic("t", 3)
    settle(coordinator, [member])
    assert len(member.owned) == 3


def test_metadata_that_does_not_concern_the_group_leaves_it_alone(
    coordinator: Coordinator,
) -> None:
    (member,) = joined(coordinator, "m1")
    coordinator.set_topic("other", 3)
    written = len(coordinator.log)
    member.beat(coordinator)
    assert coordinator.group.epoch == 2
    assert len(coordinator.log) == written


def test_the_assignor_most_members_ask_for_is_used(coordinator: Coordinator) -> None:
    joined(coordinator, "m1", assignor="uniform")
    joined(coordinator, "m2", "m3", assignor="range")
    target = coordinator.group.target
    parts = sorted(sorted(partition for _, partition in part) for part in target.values())
    assert parts == [[0, 1], [2], [3]]
    assert coordinator.group.preferred_assignor() == "range"


# Epochs and fencing


def test_a_member_from_the_future_or_the_far_past_is_fenced(coordinator: Coordinator) -> None:
    first, second = joined(coordinator, "m1", "m2")
    settle(coordinator, [first, second])
    joined(coordinator, "m3")
    settle(coordinator, [first, second])
    for epoch in (first.epoch + 1, 1):
        error = refused(coordinator, first, member_epoch=epoch)
        assert error.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_the_last_answer_may_repeat_itself(coordinator: Coordinator) -> None:
    (first,) = joined(coordinator, "m1")
    first.reconcile()
    joined(coordinator, "m2")
    settle(coordinator, [first])
    joined(coordinator, "m3")
    first.beat(coordinator, answer_lost=True)
    first.target = set(coordinator.group.members["m1"].assigned)
    first.reconcile()
    assert first.beat(coordinator) is ErrorCode.NONE
    assert first.epoch == coordinator.group.members["m1"].epoch


def test_one_epoch_behind_is_too_far_with_partitions_it_should_not_have(
    coordinator: Coordinator,
) -> None:
    first, second = joined(coordinator, "m1", "m2")
    settle(coordinator, [first, second])
    foreign = owned_topics(second.owned)
    error = refused(coordinator, first, member_epoch=first.epoch - 1, topic_partitions=foreign)
    assert error.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_starts_anew_is_given_its_partitions_again(
    coordinator: Coordinator,
) -> None:
    first, second = joined(coordinator, "m1", "m2")
    settle(coordinator, [first, second])
    before, epoch = set(first.owned), first.epoch
    first.drop()
    assert first.beat(coordinator) is ErrorCode.NONE
    assert first.target == before
    assert first.epoch == epoch == coordinator.group.epoch


def test_strangers_are_told_what_is_unknown(coordinator: Coordinator) -> None:
    stranger = Client("m9", ["t"], epoch=3)
    assert refused(coordinator, stranger).code is ErrorCode.GROUP_ID_NOT_FOUND
    joined(coordinator, "m1")
    assert refused(coordinator, stranger).code is ErrorCode.UNKNOWN_MEMBER_ID
    stranger.instance_id = "i9"
    assert refused(coordinator, stranger).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_but_a_static_member_that_is_back() -> None:
    coordinator = Coordinator(max_size=1)
    coordinator.set_topic("t", 1)
    (member,) = joined(coordinator, "m1", instance_id="i1")
    error = refused(coordinator, Client("m2", ["t"]))
    assert error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "1 members" in error.message
    member.leave(coordinator, -2)
    member.member_id = "m3"
    assert member.beat(coordinator) is ErrorCode.NONE


# Static members


def test_a_static_member_finds_its_partitions_again(coordinator: Coordinator) -> None:
    static, other = joined(coordinator, "m1", instance_id="i1") + joined(coordinator, "m2")
    settle(coordinator, [static, other])
    before, epoch = set(static.owned), coordinator.group.epoch
    static.leave(coordinator, -2)
    other.beat(coordinator)
    assert len(other.target) == 2, "nobody else gets them meanwhile"
    static.member_id = "m3"
    static.beat(coordinator)
    assert static.target == before
    assert coordinator.group.epoch == epoch, "and nobody is disturbed"
    assert "m1" not in coordinator.group.members


def test_an_instance_id_in_use_is_refused_and_an_old_instance_fenced(
    coordinator: Coordinator,
) -> None:
    (first,) = joined(coordinator, "m1", instance_id="i1")
    second = Client("m2", ["t"], instance_id="i1")
    error = refused(coordinator, second)
    assert error.code is ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = first.epoch
    first.leave(coordinator, -2)
    second.beat(coordinator)
    assert refused(coordinator, first, member_epoch=epoch).code is ErrorCode.FENCED_INSTANCE_ID
    assert refused(coordinator, first, member_epoch=-1).code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_whose_join_was_not_answered_may_join_again(
    coordinator: Coordinator,
) -> None:
    member = Client("m1", ["t"], instance_id="i1")
    member.beat(coordinator, answer_lost=True)
    coordinator.restart()
    assert member.beat(coordinator) is ErrorCode.NONE
    assert len(member.target) == 4
    assert member.epoch == coordinator.group.epoch == 2


def test_a_static_member_that_does_not_come_back_is_forgotten(coordinator: Coordinator) -> None:
    static, other = joined(coordinator, "m1", instance_id="i1") + joined(coordinator, "m2")
    settle(coordinator, [static, other])
    static.leave(coordinator, -2)
    for _ in range(10):
        coordinator.advance(5_000)
        other.beat(coordinator)
    assert len(other.target) == 4


# Regular expressions


def test_an_empty_pattern_beside_names_means_no_pattern(coordinator: Coordinator) -> None:
    """librdkafka sends that (trap 30)."""
    coordinator.set_topic("other", 3)
    member = Client("m1", ["t"])
    assert member.request().subscribed_topic_regex == ""
    member.beat(coordinator)
    assert len(member.target) == 4


def test_a_pattern_matches_whole_names_and_follows_the_topics(coordinator: Coordinator) -> None:
    coordinator.set_topic("tea", 2)
    member = Client("m1", [], regex="t.")
    member.beat(coordinator)
    assert member.target == set()
    member.subscribe([], "t.*")
    member.beat(coordinator)
    assert len(member.target) == 6
    coordinator.set_topic("toast", 1)
    settle(coordinator, [member])
    assert len(member.owned) == 7
    coordinator.delete_topic("tea")
    settle(coordinator, [member])
    assert len(member.owned) == 5


def test_a_pattern_that_nobody_uses_any_more_is_forgotten(coordinator: Coordinator) -> None:
    first, second = Client("m1", [], regex="t.*"), Client("m2", ["t"])
    first.beat(coordinator)
    second.beat(coordinator)
    assert coordinator.group.patterns.keys() == {"t.*"}
    first.subscribe(["t"])
    first.beat(coordinator)
    assert coordinator.group.patterns == {}


def test_names_and_a_pattern_add_up(coordinator: Coordinator) -> None:
    coordinator.set_topic("u", 1)
    member = Client("m1", ["t"], regex="u")
    member.beat(coordinator)
    assert len(member.target) == 5


@pytest.mark.parametrize("pattern", ["(", "a**", r"(?=x)", r"(a)\1"])
def test_what_re2_cannot_read_is_an_invalid_regular_expression(
    coordinator: Coordinator, pattern: str
) -> None:
    error = refused(coordinator, Client("m1", [], regex=pattern))
    assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert error.message.startswith(f"SubscribedTopicRegex `{pattern}` is not a valid")
    assert GROUP not in coordinator.shard.groups


# Requests that say too little or too much


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None, "subscribed_topic_regex": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining.",
        ),
    ],
)
def test_an_incomplete_request_is_refused_in_kafkas_words(
    coordinator: Coordinator, fields: dict[str, Any], message: str
) -> None:
    error = refused(coordinator, Client("m1", ["t"]), **fields)
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_plain_heartbeat_of_somebody_who_has_left_makes_it_join(
    coordinator: Coordinator,
) -> None:
    """What librdkafka sends between an unsubscribe and a subscribe must not be fatal to it."""
    client = Client("m1", ["t"])
    coordinator.heartbeat(client.request())
    coordinator.heartbeat(replace_fields(client.request(), member_epoch=-1))
    error = refused(coordinator, client, rebalance_timeout_ms=-1, topic_partitions=None)
    assert error.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(client.request()).member_epoch > 0


def test_version_0_may_leave_the_member_id_to_the_broker(coordinator: Coordinator) -> None:
    request = replace_fields(Client("", ["t"]).request(), subscribed_topic_regex=None)
    assert coordinator.heartbeat(request, api_version=0).member_id == "new-member"


def test_an_assignor_that_is_not_offered_is_unsupported() -> None:
    coordinator = Coordinator(assignors=("range",))
    error = refused(coordinator, Client("m1", ["t"], assignor="uniform"))
    assert error.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert error.message.endswith("Supported assignors: range.")


# Time


def test_a_silent_member_is_removed_after_its_session(coordinator: Coordinator) -> None:
    joined(coordinator, "m1")
    coordinator.advance(44_999)
    assert "m1" in coordinator.group.members
    coordinator.advance(1)
    assert coordinator.group.state_name() == "Empty"


def test_a_member_that_does_not_give_up_its_partitions_is_removed(
    coordinator: Coordinator,
) -> None:
    (slow,) = joined(coordinator, "m1")
    slow.reconcile()
    (waiting,) = joined(coordinator, "m2")
    for _ in range(6):
        slow.beat(coordinator)
        waiting.beat(coordinator)
        coordinator.advance(10_000)
    assert "m1" not in coordinator.group.members
    waiting.beat(coordinator)
    assert len(waiting.target) == 4
    assert slow.beat(coordinator) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_gives_everybody_a_whole_session(coordinator: Coordinator) -> None:
    (member,) = joined(coordinator, "m1")
    coordinator.advance(40_000)
    coordinator.restart()
    coordinator.advance(40_000)
    assert member.beat(coordinator) is ErrorCode.NONE


def test_a_restart_gives_everybody_the_session_that_is_configured(
    coordinator: Coordinator,
) -> None:
    consumer = replace(coordinator.settings.consumer, session_timeout_ms=6_000)
    coordinator.settings = replace(coordinator.settings, consumer=consumer)
    joined(coordinator, "m1", "m2")
    coordinator.restart()
    coordinator.advance(6_001)
    assert not coordinator.group.members


def test_members_are_asked_to_hurry_only_while_the_group_converges(
    coordinator: Coordinator,
) -> None:
    (first,) = joined(coordinator, "m1")
    assert first.interval_ms == 200
    coordinator.advance(4_000)
    first.beat(coordinator)
    assert first.interval_ms == 5_000
    (second,) = joined(coordinator, "m2")
    first.beat(coordinator)
    assert (first.interval_ms, second.interval_ms) == (200, 200)
    settle(coordinator, [first, second])
    coordinator.advance(4_000)
    first.beat(coordinator)
    second.beat(coordinator)
    assert (first.interval_ms, second.interval_ms) == (5_000, 5_000)


def test_a_group_that_waits_for_a_slow_member_hurries_less_and_less(
    coordinator: Coordinator,
) -> None:
    (slow,) = joined(coordinator, "m1")
    slow.reconcile()
    (waiting,) = joined(coordinator, "m2")
    slow.beat(coordinator)
    intervals = []
    for _ in range(4):
        coordinator.advance(8_000)
        waiting.beat(coordinator)
        slow.beat(coordinator)
        intervals.append(waiting.interval_ms)
    assert intervals == [1_000, 2_000, 3_000, 4_000]


def test_a_configured_interval_below_the_quick_one_is_not_raised() -> None:
    coordinator = Coordinator(heartbeat_interval_ms=100)
    (member,) = joined(coordinator, "m1")
    assert member.interval_ms == 100


def test_a_large_group_is_asked_for_fewer_heartbeats() -> None:
    settings = Coordinator().settings.consumer
    assert settings.heartbeat_interval(20, 0, False) == 200
    assert settings.heartbeat_interval(500, 0, False) == 2_000
    assert settings.heartbeat_interval(5_000, 0, False) == 5_000
    assert replace(settings, heartbeat_interval_ms=9_000).heartbeat_interval(1, None, True) == 9_000
