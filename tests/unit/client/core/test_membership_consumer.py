"""A member of a KIP-848 group, step by step, without a broker."""

from uuid import UUID

import pytest

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.membership import FoundTopic, PartitionsChange, Subscription
from headrace.client.core.membership_consumer import ConsumerMembership
from headrace.core.errors import ApiError, ErrorCode
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.memberships import MembershipDriver, heartbeat_response, steady_backoff

T = UUID(int=7)
SEEN = [FoundTopic("t", T, 4)]
ASSIGNED, REVOKED, LOST = PartitionsChange.ASSIGNED, PartitionsChange.REVOKED, PartitionsChange.LOST


def make(**settings: object) -> MembershipDriver:
    made = ConsumerSettings("g", "consumer", **settings)  # type: ignore[arg-type]  # test values
    return MembershipDriver(ConsumerMembership(made, "me", steady_backoff()))


def joined(*numbers: int, **settings: object) -> MembershipDriver:
    """A member that owns these partitions of one topic and has told the broker so."""
    group = make(**settings)
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(assigned={T: numbers}))
    if numbers:
        group.look_up(SEEN)
    group.poll()
    if numbers:
        group.send(ConsumerGroupHeartbeatRequest)
        group.respond(heartbeat_response())
    group.told.clear()
    return group


def owned_in(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: topic.partitions for topic in request.topic_partitions}


def test_nothing_happens_before_a_subscription() -> None:
    assert make().wait() == float("inf")


def test_a_join_tells_everything_and_owns_nothing() -> None:
    group = make(group_instance_id="i", server_assignor="range", rack="r", max_poll_interval_ms=9)
    group.membership.subscribe(Subscription(frozenset({"b", "a"})))
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "me", 0)
    assert (request.instance_id, request.rack_id, request.server_assignor) == ("i", "r", "range")
    assert (request.rebalance_timeout_ms, request.subscribed_topic_names) == (9, ["a", "b"])
    assert request.subscribed_topic_regex is None
    assert owned_in(request) == {}


def test_later_heartbeats_tell_only_what_changed() -> None:
    group = joined(0, 1)
    assert group.wait() == 5_000
    group.now_ms += 5_000
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == 1
    assert request.subscribed_topic_names is None
    assert request.rebalance_timeout_ms == -1
    assert owned_in(request) is None


def test_the_broker_is_told_what_is_owned_only_after_the_program_was() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(assigned={T: [0, 1]}))
    assert group.look_up(SEEN).ids == {T}
    assert group.wait() == 5_000
    assert group.poll() == [(ASSIGNED, [0, 1])]
    assert owned_in(group.send(ConsumerGroupHeartbeatRequest)) == {T: [0, 1]}


def test_a_first_assignment_of_nothing_is_told_once() -> None:
    group = joined()
    assert group.poll() == []
    assert group.wait() == 5_000


def test_what_goes_is_revoked_before_what_is_new_is_assigned() -> None:
    group = joined(0, 1)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=2, assigned={T: [1, 2]}))
    assert group.poll() == [(REVOKED, [0]), (ASSIGNED, [2])]
    assert owned_in(group.send(ConsumerGroupHeartbeatRequest)) == {T: [1, 2]}


def test_what_was_given_up_is_told_to_the_broker_before_the_rest_is_taken() -> None:
    group = joined(0, 1)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=2, assigned={T: [1, 2]}))
    revoking = group.membership.notice()
    assert revoking is not None
    assert group.wait() == 5_000, "not before the program has given it up"
    group.membership.acknowledge(revoking)
    assert owned_in(group.send(ConsumerGroupHeartbeatRequest)) == {T: [1]}


def test_the_new_assignment_is_told_at_once_when_the_broker_asks_for_short_heartbeats() -> None:
    group = joined(0)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(interval_ms=50))
    assert group.wait() == 50


def test_an_assignment_that_changes_while_the_program_is_told_is_reached_all_the_same() -> None:
    group = joined()
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=2, assigned={T: [0, 1]}))
    group.look_up(SEEN)
    telling = group.membership.notice()
    assert telling is not None
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=3, assigned={T: [1, 2]}))
    group.membership.acknowledge(telling)
    assert group.owned == [0, 1]
    assert group.poll() == [(REVOKED, [0]), (ASSIGNED, [2])]


def test_topics_without_a_name_are_looked_up_until_they_have_one() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(assigned={T: [0]}))
    group.look_up(None)
    assert group.poll() == []
    assert group.wait() == 500
    group.now_ms += 500
    group.look_up(SEEN)
    assert group.poll() == [(ASSIGNED, [0])]


def test_a_pattern_is_sent_to_the_broker_and_taken_back_by_an_empty_one() -> None:
    group = make()
    group.membership.subscribe(Subscription(pattern="t.*"))
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    group.respond(heartbeat_response(assigned={}))
    group.poll()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_loses_everything_and_joins_again(code: ErrorCode) -> None:
    group = joined(0, 1)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(error_code=code))
    assert group.wait() == float("inf"), "not before the program knows"
    assert group.membership.identity.epoch == -1
    assert group.poll() == [(LOST, [0, 1])]
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.member_id) == (0, "me")
    assert owned_in(request) == {}


def test_a_fenced_member_that_owns_nothing_joins_again_without_the_program() -> None:
    group = joined()
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_what_is_being_assigned_while_we_are_fenced_is_lost_too() -> None:
    group = joined(0)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=2, assigned={T: [0, 1]}))
    telling = group.membership.notice()
    assert telling is not None
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    group.membership.acknowledge(telling)
    assert group.poll() == [(LOST, [0, 1])]


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        BrokerUnreachable("gone"),
        heartbeat_response(error_code=ErrorCode.NOT_COORDINATOR),
        heartbeat_response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_coordinator_that_moves_or_loads_is_asked_again_with_everything(
    failure: ApiError,
) -> None:
    group = joined(0, 1)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(failure)
    assert group.wait() == 100
    group.now_ms += 100
    request = group.send(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["t"])
    assert owned_in(request) == {T: [0, 1]}
    group.respond(failure)
    assert group.wait() == 200, "ever more patient"
    assert group.owned == [0, 1]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_a_refusal_ends_the_membership_until_the_next_subscription(code: ErrorCode) -> None:
    group = joined(0)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(error_code=code, error_message="because"))
    assert group.poll() == [(LOST, [0])]
    error = group.membership.error
    assert error is not None
    assert (error.code, str(error)) == (code, "heartbeat in group 'g': because")
    assert group.wait() == float("inf")
    group.membership.subscribe(Subscription(frozenset({"t"})))
    assert group.membership.error is None
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_a_program_that_does_not_poll_leaves_and_comes_back_with_its_next_poll() -> None:
    group = joined(0, max_poll_interval_ms=8_000)
    group.membership.poll_timer.end(group.now_ms)
    group.now_ms += 5_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response())
    assert group.wait() == 3_000
    group.now_ms += 3_000
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == -1
    group.respond(heartbeat_response(epoch=-1))
    assert group.wait() == float("inf")
    assert group.poll() == [(LOST, [0])]
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_a_program_without_partitions_comes_back_with_its_next_poll_too() -> None:
    group = joined(max_poll_interval_ms=1_000)
    group.membership.poll_timer.end(group.now_ms)
    group.now_ms += 1_000
    group.send(ConsumerGroupHeartbeatRequest)
    group.respond(heartbeat_response(epoch=-1))
    assert group.wait() == float("inf")
    assert group.poll() == []
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_a_poll_may_wait_longer_than_the_poll_interval() -> None:
    group = joined(0, max_poll_interval_ms=1_000)
    group.now_ms += 5_000
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 1


def test_asking_for_the_next_record_counts_as_a_poll() -> None:
    group = joined(0, max_poll_interval_ms=8_000)
    group.membership.poll_timer.end(group.now_ms)
    group.now_ms += 4_000
    group.membership.poll_timer.polls += 1
    group.wait()
    group.now_ms += 4_000
    assert group.send(ConsumerGroupHeartbeatRequest).member_epoch == 1


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_says_whether_the_place_is_kept(instance: str | None, epoch: int) -> None:
    group = joined(0, 1, group_instance_id=instance)
    notice = group.membership.leave_notice()
    assert notice is not None
    assert (notice.change, len(notice.partitions)) == (REVOKED, 2)
    send = group.membership.leave_request("bye")
    assert send is not None
    assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
    assert (send.request.member_epoch, send.request.instance_id) == (epoch, instance)
    assert group.membership.leave_request("bye") is None


def test_one_who_never_joined_leaves_without_a_word() -> None:
    group = make()
    assert group.membership.leave_notice() is None
    assert group.membership.leave_request("bye") is None


def test_one_whose_join_was_not_answered_yet_leaves_all_the_same() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(ConsumerGroupHeartbeatRequest)
    assert group.membership.leave_notice() is None
    assert group.membership.leave_request("bye") is not None


def test_a_commit_refused_for_an_old_epoch_fences_at_once() -> None:
    group = joined(0)
    group.membership.commit_refused(ApiError(ErrorCode.STALE_MEMBER_EPOCH))
    assert group.poll() == []
    group.membership.commit_refused(ApiError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert group.poll() == [(LOST, [0])]
