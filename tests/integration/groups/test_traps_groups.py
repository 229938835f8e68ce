"""Traps that clients fall into with classic groups, by raw requests.

Each test is named by the number of its trap in the project's list of wire facts.
"""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from headrace.core.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.differential.peer import Peer
from tests.integration.conftest import BrokerMaker
from tests.support.brokers import BrokerProcess
from tests.support.group_wire import ClassicMember, GroupWire, commit_request, subscription

_FIRST_BATCHED = 8
_FIRST_BY_ID = 10


def _fetch_request(version: int, group: str, topic: str, topic_id: UUID) -> OffsetFetchRequest:
    if version < _FIRST_BATCHED:
        named = OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])
        return OffsetFetchRequest(group_id=group, topics=[named])
    asked = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0, 1])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])


@pytest.mark.parametrize("version", range(1, 11))
def test_trap_25_an_unknown_group_has_no_offsets_and_no_error(
    peer: Peer, wire: GroupWire, group: str, version: int
) -> None:
    topic = f"unknown-{group}"
    topic_id = peer.create(topic, 2)
    wire.find(group)
    found = wire.ask(_fetch_request(version, group, topic, topic_id), version, OffsetFetchResponse)
    if version < _FIRST_BATCHED:
        assert found.error_code == 0
        old = found.topics[0].partitions
        assert [(each.committed_offset, each.error_code) for each in old] == [(-1, 0)] * 2
        return
    (one,) = found.groups
    assert (one.group_id, one.error_code) == (group, 0)
    partitions = one.topics[0].partitions
    assert [(each.committed_offset, each.error_code) for each in partitions] == [(-1, 0)] * 2
    if version >= _FIRST_BY_ID:
        assert one.topics[0].topic_id == topic_id


@pytest.mark.parametrize("version", range(2, 11))
def test_trap_25_all_topics_of_an_unknown_group_are_none(
    wire: GroupWire, group: str, version: int
) -> None:
    wire.find(group)
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    request = (
        OffsetFetchRequest(group_id=group, topics=None)
        if version < _FIRST_BATCHED
        else OffsetFetchRequest(groups=[asked])
    )
    found = wire.ask(request, version, OffsetFetchResponse)
    if version < _FIRST_BATCHED:
        assert (found.error_code, found.topics) == (0, [])
    else:
        assert [(each.error_code, each.topics) for each in found.groups] == [(0, [])]


def _commit(wire: GroupWire, group: str, topic: str, offset: int) -> None:
    request = commit_request(group, topic, {0: offset})
    found = wire.ask(request, 9, OffsetCommitResponse)
    assert found.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", [8, 9])
def test_trap_26_offsets_of_many_groups_come_in_one_answer(
    peer: Peer, wire: GroupWire, group: str, version: int
) -> None:
    topic = f"batched-{group}"
    peer.create(topic, 2)
    first, second, stranger = (f"{group}-{number}" for number in range(3))
    wire.find(first, second, stranger)
    _commit(wire, first, topic, 11)
    _commit(wire, second, topic, 22)
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=first, topics=[asked]),
            OffsetFetchRequestGroup(group_id=second, topics=None),
            OffsetFetchRequestGroup(group_id=stranger, topics=None),
        ],
        require_stable=True,  # nothing is pending in a transaction, so nothing is unstable
    )
    found = {each.group_id: each for each in wire.ask(request, version, OffsetFetchResponse).groups}
    assert {name: each.error_code for name, each in found.items()} == {
        first: 0,
        second: 0,
        stranger: 0,
    }
    assert [each.committed_offset for each in found[first].topics[0].partitions] == [11, -1]
    # All topics means: those with offsets, and of them only the partitions with offsets.
    assert [each.committed_offset for each in found[second].topics[0].partitions] == [22]
    assert found[stranger].topics == []


@pytest.mark.parametrize("version", range(7))
def test_trap_26_coordinators_are_found_one_by_one_or_many_at_a_time(
    broker: BrokerProcess, wire: GroupWire, group: str, version: int
) -> None:
    wire.find(group)
    here = (0, "127.0.0.1", broker.port)
    if version < 4:
        request = FindCoordinatorRequest(key=group)
        found = wire.ask(request, version, FindCoordinatorResponse)
        assert found.error_code == 0
        assert (found.node_id, found.host, found.port) == here
        return
    keys = [group, f"{group}-other", ""]
    found = wire.ask(
        FindCoordinatorRequest(coordinator_keys=keys), version, FindCoordinatorResponse
    )
    assert [each.key for each in found.coordinators] == keys
    assert {(each.node_id, each.host, each.port) for each in found.coordinators} == {here}
    assert [each.error_code for each in found.coordinators] == [0, 0, 0]


@pytest.mark.parametrize("version", range(10))
def test_trap_27_a_first_join_brings_only_a_member_id_from_version_4_on(
    wire: GroupWire, group: str, version: int
) -> None:
    member = wire.member(group)
    found = member.join_once(version)
    if version >= 4:
        assert found.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert found.member_id.startswith("wire-")
        named = found.member_id
        found = member.join_once(version)
        assert found.member_id == named
    assert (found.error_code, found.generation_id) == (0, 1)
    assert found.leader == found.member_id
    assert [each.member_id for each in found.members] == [found.member_id]
    assert found.protocol_name == "range"
    assert found.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_trap_27_sync_tells_the_protocol_from_version_5_on(
    wire: GroupWire, group: str, version: int
) -> None:
    member = wire.member(group)
    member.join()
    found = member.sync({member.member_id: b"share"}, version)
    assert (found.error_code, found.assignment) == (0, b"share")
    told = ("consumer", "range") if version >= 5 else (None, None)
    assert (found.protocol_type, found.protocol_name) == told


def test_trap_27_protocols_that_do_not_fit_are_inconsistent(wire: GroupWire, group: str) -> None:
    member = wire.member(group)
    member.join()
    member.sync({member.member_id: b""})
    for stranger in (
        wire.member(group, protocol_type="connect"),
        wire.member(group, protocols={"roundrobin": subscription("any")}),
        wire.member(f"{group}-2", protocols={}),
        wire.member(f"{group}-2", protocol_type=""),
    ):
        assert stranger.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.protocols = {"sticky": b""}
    assert member.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.protocols, member.protocol_type = {"range": subscription("any")}, "connect"
    assert member.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _static_pair(wire: GroupWire, group: str) -> tuple[ClassicMember, ClassicMember]:
    """Leader and follower, both static, in a stable group."""
    leader = wire.member(group, instance_id="first")
    follower = wire.member(group, instance_id="second")
    leader.join()
    follower.begin_join()
    assert leader.heartbeat() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    leader.begin_join()
    assert leader.end_join().leader == leader.member_id
    follower.end_join()
    follower.begin_sync()
    leader.sync({leader.member_id: b"to the first", follower.member_id: b"to the second"})
    assert follower.end_sync().assignment == b"to the second"
    return leader, follower


def test_trap_27_a_static_member_comes_back_without_a_rebalance(
    peer: Peer, wire: GroupWire, group: str
) -> None:
    topic = f"static-{group}"
    peer.create(topic)
    leader, follower = _static_pair(wire, group)
    back = wire.member(group, instance_id="second")
    found = back.join_once()
    assert (found.error_code, found.generation_id) == (0, follower.generation)
    assert back.member_id != follower.member_id
    assert found.members == []
    assert back.sync().assignment == b"to the second"
    assert leader.heartbeat() == 0
    assert back.heartbeat() == 0
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert follower.commit(topic, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert follower.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert follower.join_once().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert follower.leave().members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_trap_27_a_static_leader_that_comes_back_is_told_to_skip_the_assignment(
    wire: GroupWire, group: str
) -> None:
    leader, follower = _static_pair(wire, group)
    back = wire.member(group, instance_id="first")
    found = back.join_once(9)
    assert (found.error_code, found.generation_id) == (0, leader.generation)
    assert found.leader == back.member_id
    assert found.skip_assignment
    assert {each.member_id for each in found.members} == {back.member_id, follower.member_id}
    assert back.sync().assignment == b"to the first"


def test_trap_27_an_older_static_leader_is_told_of_the_old_leader_instead(
    wire: GroupWire, group: str
) -> None:
    leader, _ = _static_pair(wire, group)
    back = wire.member(group, instance_id="first")
    found = back.join_once(8)
    # Were it named leader it would assign anew, and its SyncGroup in a stable group be ignored.
    assert (found.error_code, found.leader) == (0, leader.member_id)
    assert (found.skip_assignment, found.members) == (False, [])


@pytest.mark.parametrize(
    ("session_timeout_ms", "code"),
    [
        (499, ErrorCode.INVALID_SESSION_TIMEOUT),
        (500, ErrorCode.NONE),
        (1_800_000, ErrorCode.NONE),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_trap_28_session_timeouts_have_bounds(
    wire: GroupWire, group: str, session_timeout_ms: int, code: ErrorCode
) -> None:
    # Up to version 3 nothing comes before the answer that matters.
    member = wire.member(group, session_timeout_ms=session_timeout_ms)
    assert member.join_once(3).error_code == code


def test_trap_28_the_first_rebalance_waits_for_more_members_and_sessions_have_kafkas_bounds(
    make_broker: BrokerMaker, group: str
) -> None:
    broker = make_broker({"group.initial.rebalance.delay.ms": "700"})
    broker.start()
    wire = GroupWire(broker.port)
    short = wire.member(group, session_timeout_ms=5_999)
    assert short.join_once(3).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    first, second = (wire.member(group, session_timeout_ms=6_000) for _ in range(2))
    for each in (first, second):
        assert each.join_once().error_code == ErrorCode.MEMBER_ID_REQUIRED
    start = time.monotonic()
    first.begin_join()
    second.begin_join()
    answers = [first.end_join(), second.end_join()]
    waited = time.monotonic() - start
    assert [each.generation_id for each in answers] == [1, 1]
    assert sum(len(each.members) for each in answers) == 2
    # One more delay at most, since the second came within the first one.
    assert 0.6 < waited < 5
    wire.close()


def test_trap_29_commits_in_a_rebalance_are_answered_as_kafka_does(
    peer: Peer, wire: GroupWire, group: str
) -> None:
    topic = f"rebalance-{group}"
    peer.create(topic)
    member, joiner = wire.member(group), wire.member(group)
    member.join()
    # Completing: the leader has not yet said who gets what.
    assert member.commit(topic, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    member.sync({member.member_id: b""})
    assert member.commit(topic, 2) == 0
    joiner.join_once()
    joiner.begin_join()
    _until_rebalance(member)
    # Preparing: the old generation may still commit what it has done.
    assert member.commit(topic, 3) == 0
    assert wire.committed(group, topic) == 3
    old = member.generation
    member.begin_join()
    member.end_join()
    joiner.end_join()
    assert member.generation == old + 1
    assert member.commit(topic, 4) == ErrorCode.REBALANCE_IN_PROGRESS
    member.generation = old
    assert member.commit(topic, 5) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert member.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    assert wire.committed(group, topic) == 3


def _until_rebalance(member: ClassicMember) -> None:
    deadline = time.monotonic() + 10
    while member.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        assert time.monotonic() < deadline


def test_trap_29_strangers_cannot_commit_for_a_group_with_members(
    peer: Peer, wire: GroupWire, group: str
) -> None:
    topic = f"strangers-{group}"
    peer.create(topic)
    stranger = wire.member(group, member_id="nobody", generation=1)
    # With a generation it claims a membership, and there is no such group.
    assert stranger.commit(topic, 1) == ErrorCode.GROUP_ID_NOT_FOUND
    member = wire.member(group)
    member.join()
    member.sync({member.member_id: b""})
    stranger.generation = member.generation
    assert stranger.commit(topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    simple = wire.member(group)
    assert simple.commit(topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave().members[0].error_code == 0
    assert simple.commit(topic, 1) == 0
    assert wire.committed(group, topic) == 1
