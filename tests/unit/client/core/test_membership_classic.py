"""A member of a classic group, step by step, without a broker."""

from uuid import UUID

import pytest

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.member_metadata import (
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from headrace.client.core.membership import FoundTopic, PartitionsChange, Subscription
from headrace.client.core.membership_classic import ClassicMembership
from headrace.core.errors import ApiError, ErrorCode
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest
from tests.support.memberships import (
    MembershipDriver,
    join_response,
    partitions,
    steady_backoff,
    sync_response,
)

ASSIGNED, REVOKED, LOST = PartitionsChange.ASSIGNED, PartitionsChange.REVOKED, PartitionsChange.LOST
EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)
OK = HeartbeatResponse()
REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
TOPICS_AGE_MS = 60_000


def seen(count: int, topic: str = "t", *, internal: bool = False) -> FoundTopic:
    return FoundTopic(topic, UUID(int=7), count, internal)


def make(**settings: object) -> MembershipDriver:
    made = ConsumerSettings("g", **settings)  # type: ignore[arg-type]  # test values
    return MembershipDriver(ClassicMembership(made, steady_backoff(), TOPICS_AGE_MS))


def stable(*numbers: int, topic: str = "t", **settings: object) -> MembershipDriver:
    """A follower of generation 1 that owns these partitions."""
    group = make(**settings)
    group.membership.subscribe(Subscription(frozenset({topic})))
    follow(group, 1, *numbers, topic=topic)
    group.poll()
    group.told.clear()
    return group


def follow(
    group: MembershipDriver, generation: int, *numbers: int, topic: str = "t"
) -> JoinGroupRequest:
    """Join and sync as a follower that is given these partitions."""
    request = group.send(JoinGroupRequest)
    assignor = request.protocols[0].name
    group.respond(join_response(generation=generation, assignor=assignor))
    group.send(SyncGroupRequest)
    group.respond(sync_response(encode_assignment(partitions(*numbers, topic=topic))))
    return request


def owned_in(request: JoinGroupRequest) -> tuple[list[int], int]:
    """What a join says is owned, and of which generation."""
    metadata = request.protocols[0].metadata
    member = decode_member(JoinGroupResponseMember(member_id="m", metadata=metadata))
    return [each.partition for each in member.owned], member.generation


def test_a_first_join_is_repeated_with_the_member_id_it_is_given() -> None:
    group = make(session_timeout_ms=7_000, max_poll_interval_ms=9_000, assignors=EAGER)
    group.membership.subscribe(Subscription(frozenset({"t"})))
    request = group.send(JoinGroupRequest)
    assert (request.member_id, request.protocol_type) == ("", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (7_000, 9_000)
    group.respond(join_response(member_id="m-1", error_code=ErrorCode.MEMBER_ID_REQUIRED))
    assert group.send(JoinGroupRequest).member_id == "m-1"


def test_a_follower_syncs_without_an_assignment_and_gets_its_share() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(JoinGroupRequest)
    group.respond(join_response(generation=3, leader="other"))
    request = group.send(SyncGroupRequest)
    assert (request.generation_id, request.assignments) == (3, [])
    group.respond(sync_response(encode_assignment(partitions(2, 5))))
    assert group.poll() == [(ASSIGNED, [2, 5])]
    assert group.membership.identity.epoch == 3
    assert group.wait() == 3_000


def test_the_leader_divides_what_all_members_want() -> None:
    group = make(assignors=EAGER)
    group.membership.subscribe(Subscription(frozenset({"t"})))
    mine = encode_subscription(["t"], [], -1, "")
    theirs = encode_subscription(["t", "u"], [], -1, "")
    group.send(JoinGroupRequest)
    group.respond(join_response(leader="me", members={"me": mine, "you": theirs}))
    assert group.look_up([seen(3), seen(1, "u")]).names == frozenset({"t", "u"})
    shares = {
        each.member_id: decode_assignment(each.assignment)
        for each in group.send(SyncGroupRequest).assignments
    }
    assert shares == {"me": partitions(0, 1), "you": [*partitions(2), *partitions(0, topic="u")]}


def test_a_leader_told_to_skip_divides_nothing_but_watches_the_topics() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    mine = encode_subscription(["t"], [], -1, "")
    group.send(JoinGroupRequest)
    group.respond(join_response(leader="me", members={"me": mine}, skip_assignment=True))
    assert group.send(SyncGroupRequest).assignments == []
    group.respond(sync_response(encode_assignment(partitions(0))))
    group.poll()
    group.now_ms += 2_000
    group.look_up([seen(1)])
    group.now_ms = TOPICS_AGE_MS + 2_000
    group.look_up([seen(2)])
    group.next_action()
    assert group.poll() == [(REVOKED, [0])], "there is something to divide anew"


def test_eager_members_give_up_everything_before_they_join_again() -> None:
    group = stable(0, 1, assignors=EAGER)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(REBALANCE)
    assert group.wait() == 3_000, "joining waits for the program, heartbeats do not"
    assert group.membership.identity.epoch == 1, "it may still commit"
    assert group.poll() == [(REVOKED, [0, 1])]
    request = follow(group, 2, 1)
    assert owned_in(request) == ([], 1)
    assert group.poll() == [(ASSIGNED, [1])]


def test_cooperative_members_keep_what_stays_and_join_once_more_for_what_goes() -> None:
    group = stable(0, 1, assignors=COOPERATIVE)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(REBALANCE)
    request = follow(group, 2, 1)
    assert owned_in(request) == ([0, 1], 1)
    assert group.owned == [0, 1], "until the program has given it up"
    assert group.poll() == [(REVOKED, [0]), (ASSIGNED, [])]
    request = follow(group, 3, 1, 2)
    assert owned_in(request) == ([1], 2)
    assert group.poll() == [(ASSIGNED, [2])]
    assert group.wait() == 3_000


def test_commits_are_of_the_old_generation_until_the_join_is_answered() -> None:
    group = stable(0, assignors=COOPERATIVE)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(REBALANCE)
    group.send(JoinGroupRequest)
    assert (group.membership.identity.member_id, group.membership.identity.epoch) == ("me", 1)
    group.respond(join_response(generation=2, assignor="cooperative-sticky"))
    assert group.membership.identity.epoch == 2


def test_one_eager_assignor_on_offer_makes_the_member_eager() -> None:
    group = stable(0, assignors=("cooperative-sticky", "range"))
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(REBALANCE)
    group.next_action()
    assert group.poll() == [(REVOKED, [0])]


def test_a_new_subscription_gives_up_topics_that_are_no_longer_wanted() -> None:
    group = stable(0, assignors=COOPERATIVE)
    group.membership.subscribe(Subscription(frozenset({"u"})))
    group.wait()
    assert group.poll() == [(REVOKED, [0])]
    assert group.send(JoinGroupRequest).member_id == "me"


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_a_member_the_group_has_gone_on_without_loses_its_partitions(
    code: ErrorCode, member_id: str
) -> None:
    group = stable(0, 1, assignors=COOPERATIVE)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(HeartbeatResponse(error_code=code))
    group.wait()
    assert group.membership.identity.epoch == -1
    assert group.poll() == [(LOST, [0, 1])]
    request = group.send(JoinGroupRequest)
    assert request.member_id == member_id
    assert owned_in(request) == ([], -1)


def test_a_sync_that_comes_too_late_joins_again_and_keeps_what_is_owned() -> None:
    group = stable(0, assignors=COOPERATIVE)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(REBALANCE)
    group.send(JoinGroupRequest)
    group.respond(join_response(generation=2, assignor="cooperative-sticky"))
    group.send(SyncGroupRequest)
    group.respond(sync_response(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert owned_in(group.send(JoinGroupRequest)) == ([0], 1)
    assert group.poll() == []


@pytest.mark.parametrize(
    "failure",
    [
        BrokerUnreachable("gone"),
        ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR),
        HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_coordinator_that_moves_or_loads_costs_no_partition(failure: ApiError) -> None:
    group = stable(0)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(failure)
    assert group.wait() == 100
    group.now_ms += 100
    group.send(HeartbeatRequest)
    group.respond(OK)
    assert (group.poll(), group.owned) == ([], [0])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_a_refused_join_ends_the_membership(code: ErrorCode) -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(JoinGroupRequest)
    group.respond(join_response(error_code=code))
    assert group.membership.error is not None
    assert group.membership.error.code is code
    assert group.wait() == float("inf")
    group.membership.subscribe(Subscription(frozenset({"t"})))
    assert group.send(JoinGroupRequest).member_id == ""


def test_what_is_being_assigned_while_the_generation_is_lost_is_lost_too() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    follow(group, 1, 0, 1)
    telling = group.membership.notice()
    assert telling is not None
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.wait()
    group.membership.acknowledge(telling)
    assert group.poll() == [(LOST, [0, 1])]


def test_what_was_not_told_yet_when_the_generation_is_lost_is_never_told() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    follow(group, 1, 0, 1)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.send(JoinGroupRequest)
    assert group.poll() == []


def test_a_program_that_does_not_poll_leaves_and_comes_back_with_its_next_poll() -> None:
    group = stable(0, max_poll_interval_ms=5_000)
    group.membership.poll_timer.end(group.now_ms)
    group.now_ms += 3_000
    group.send(HeartbeatRequest)
    group.respond(OK)
    assert group.wait() == 2_000
    group.now_ms += 2_000
    request = group.send(LeaveGroupRequest)
    assert [each.member_id for each in request.members] == ["me"]
    group.respond(LeaveGroupResponse())
    assert group.wait() == float("inf")
    assert group.poll() == [(LOST, [0])]
    assert group.send(JoinGroupRequest).member_id == ""


def test_a_static_member_that_does_not_poll_stops_without_leaving() -> None:
    group = stable(0, max_poll_interval_ms=2_000, group_instance_id="i")
    group.membership.poll_timer.end(group.now_ms)
    group.now_ms += 2_000
    assert group.wait() == float("inf")
    assert group.poll() == [(LOST, [0])]
    assert group.send(JoinGroupRequest).group_instance_id == "i"


def test_closing_leaves_unless_the_member_is_static() -> None:
    group = stable(0, 1)
    notice = group.membership.leave_notice()
    assert notice is not None
    assert (notice.change, len(notice.partitions)) == (REVOKED, 2)
    assert group.membership.leave_request("bye") is not None
    assert group.membership.leave_request("bye") is None
    static = stable(0, group_instance_id="i")
    static.membership.leave_notice()
    assert static.membership.leave_request("bye") is None


def test_the_leader_asks_for_a_rebalance_when_a_topic_grows() -> None:
    group = make(assignors=COOPERATIVE)
    group.membership.subscribe(Subscription(frozenset({"t"})))
    mine = encode_subscription(["t"], [], -1, "")
    group.send(JoinGroupRequest)
    group.respond(join_response(leader="me", assignor="cooperative-sticky", members={"me": mine}))
    group.look_up([seen(2)])
    group.respond(sync_response(group.send(SyncGroupRequest).assignments[0].assignment))
    group.poll()
    group.now_ms = TOPICS_AGE_MS
    group.look_up([seen(2)])
    group.send(HeartbeatRequest)
    group.respond(OK)
    group.now_ms = 2 * TOPICS_AGE_MS
    group.look_up([seen(3)])
    assert owned_in(group.send(JoinGroupRequest)) == ([0, 1], 1)


def test_a_topic_that_does_not_exist_yet_is_looked_for_sooner() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(JoinGroupRequest)
    mine = encode_subscription(["t"], [], -1, "")
    group.respond(join_response(leader="me", members={"me": mine}))
    group.look_up([])
    group.send(SyncGroupRequest)
    group.respond(sync_response(encode_assignment([])))
    assert group.poll() == [(ASSIGNED, [])]
    group.now_ms += 2_000
    group.look_up([seen(1)])
    assert group.send(JoinGroupRequest).member_id == "me"


def test_a_pattern_means_the_topics_that_match_as_a_whole_and_are_not_internal() -> None:
    group = make()
    group.membership.subscribe(Subscription(pattern="a.*"))
    assert (
        group.look_up([seen(1, "ab"), seen(1, "ba"), seen(1, "a__internal", internal=True)]).names
        is None
    )
    request = group.send(JoinGroupRequest)
    member = decode_member(
        JoinGroupResponseMember(member_id="m", metadata=request.protocols[0].metadata)
    )
    assert member.topics == {"ab"}


def test_a_new_topic_that_matches_the_pattern_makes_any_member_join_again() -> None:
    group = make(assignors=COOPERATIVE)
    group.membership.subscribe(Subscription(pattern="t.*"))
    group.look_up([seen(1)])
    follow(group, 1, 0)
    group.poll()
    group.now_ms = TOPICS_AGE_MS
    group.look_up([seen(1), seen(1, "t2")])
    group.send(JoinGroupRequest)


def test_a_commit_refused_says_what_the_next_heartbeat_would() -> None:
    group = stable(0, assignors=EAGER)
    group.membership.commit_refused(ApiError(ErrorCode.REBALANCE_IN_PROGRESS))
    group.wait()
    assert group.poll() == [(REVOKED, [0])]
    other = stable(0)
    other.membership.commit_refused(ApiError(ErrorCode.ILLEGAL_GENERATION))
    other.wait()
    assert other.poll() == [(LOST, [0])]


def test_an_assignment_that_cannot_be_read_is_an_error_not_a_crash() -> None:
    group = make()
    group.membership.subscribe(Subscription(frozenset({"t"})))
    group.send(JoinGroupRequest)
    group.respond(join_response())
    group.send(SyncGroupRequest)
    group.respond(sync_response(b"\x00"))
    assert group.membership.error is not None
