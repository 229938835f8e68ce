"""Trap 30: what clients of the new group protocol (KIP-848) stumble over, by raw requests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest

from headrace.core.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from headrace.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from tests.differential.peer import Peer
from tests.support.group_wire import GroupWire, commit_request, until

_Owned = dict[uuid.UUID, frozenset[int]]


@dataclass(slots=True)
class Member:
    """A member that obeys: it owns at once whatever it is told to own."""

    wire: GroupWire
    group: str
    topics: list[str] | None = None
    regex: str | None = None
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    instance_id: str | None = None
    epoch: int = 0
    owned: _Owned = field(default_factory=dict)

    def join(self, version: int = 1, assignor: str | None = None) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=0,
            instance_id=self.instance_id,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=self.topics or [],
            subscribed_topic_regex=self.regex,
            server_assignor=assignor,
            topic_partitions=[],
        )
        return self._take(self.wire.ask(request, version, ConsumerGroupHeartbeatResponse))

    def beat(self, epoch: int | None = None) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that tells what it owns, as after every change."""
        owned = [
            OwnedTopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in self.owned.items()
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            topic_partitions=owned,
        )
        return self._take(self.wire.ask(request, 1, ConsumerGroupHeartbeatResponse))

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.beat(epoch)

    def commit(self, topic: str, offset: int, epoch: int) -> int:
        request = commit_request(
            self.group,
            topic,
            {0: offset},
            member_id=self.member_id,
            generation=epoch,
            instance_id=self.instance_id,
        )
        found = self.wire.ask(request, 9, OffsetCommitResponse)
        return found.topics[0].partitions[0].error_code

    def until_it_owns(self, count: int) -> None:
        """Heartbeats until the member has so many partitions."""

        def has_all() -> bool | None:
            assert self.beat().error_code == 0
            return self._count() == count or None

        until(has_all, f"{count} partitions, has {self.owned}")
        assert self.beat().error_code == 0  # tells that it gave up the rest

    def _count(self) -> int:
        return sum(len(partitions) for partitions in self.owned.values())

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.member_id:
                self.member_id = answer.member_id
            if answer.assignment is not None:
                self.owned = {
                    each.topic_id: frozenset(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
        return answer


@pytest.fixture
def two_topics(peer: Peer, group: str) -> tuple[str, uuid.UUID]:
    """The first of two topics; the second begins with the same letters."""
    first = f"trap30-{group}"
    first_id = peer.create(first, 2)
    peer.create(f"{first}-more", 3)
    return first, first_id


def test_trap_30_an_empty_regular_expression_is_none(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = two_topics
    wire.find(group)
    member = Member(wire, group, topics=[topic], regex="")
    assert member.join().error_code == 0
    member.until_it_owns(2)
    assert member.owned == {topic_id: frozenset({0, 1})}


def test_trap_30_a_regular_expression_must_match_the_whole_name(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = two_topics
    wire.find(group)
    member = Member(wire, group, regex=topic[:-1] + ".")
    assert member.join().error_code == 0
    member.until_it_owns(2)
    assert list(member.owned) == [topic_id]
    both = Member(wire, f"{group}-both", regex=f"{topic}.*")
    wire.find(both.group)
    assert both.join().error_code == 0
    both.until_it_owns(5)


def test_trap_30_a_bad_regular_expression_has_its_own_error(wire: GroupWire, group: str) -> None:
    wire.find(group)
    # The last one is fine for most engines, but not in linear time: RE2 has no look-ahead.
    for regex in ("(", "[", "(?=ahead)"):
        answer = Member(wire, group, regex=regex).join()
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_trap_30_member_ids_come_from_the_client_since_version_1(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    wire.find(group)
    named = Member(wire, group, topics=[two_topics[0]])
    own_name = named.member_id
    answer = named.join()
    assert (answer.error_code, answer.member_id) == (0, own_name)
    assert Member(wire, group, topics=["t"], member_id="").join(1).error_code == (
        ErrorCode.INVALID_REQUEST
    )
    old = Member(wire, f"{group}-old", topics=[two_topics[0]], member_id="")
    wire.find(old.group)
    answer = old.join(0)
    assert answer.error_code == 0
    assert answer.member_id


def test_trap_30_epochs_of_joining_working_and_leaving(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    topic, _ = two_topics
    wire.find(group)
    member = Member(wire, group, topics=[topic])
    answer = member.join()
    assert answer.error_code == 0
    assert answer.member_epoch > 0
    assert answer.heartbeat_interval_ms > 0
    member.until_it_owns(2)
    assert member.beat(epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.commit(topic, 5, member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert member.commit(topic, 5, member.epoch) == 0
    assert wire.committed(group, topic) == 5
    stranger = Member(wire, group, topics=[topic])
    assert stranger.beat(epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(topic, 9, member.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    left = member.leave()
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.committed(group, topic) == 5


def test_trap_30_a_static_member_keeps_its_place_while_away(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    topic, _ = two_topics
    wire.find(group)
    first = Member(wire, group, topics=[topic], instance_id="one")
    second = Member(wire, group, topics=[topic], instance_id="two")
    first.join()
    first.until_it_owns(2)
    second.join()
    first.until_it_owns(1)
    second.until_it_owns(1)
    double = Member(wire, group, topics=[topic], instance_id="one")
    assert double.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    kept = first.owned
    gone = first.leave(-2)
    assert (gone.error_code, gone.member_epoch) == (0, -2)
    assert double.join().error_code == 0
    double.until_it_owns(1)
    assert double.owned == kept
    assert first.beat().error_code in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )
    second.until_it_owns(1)


def test_trap_30_an_unknown_assignor_is_refused(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID]
) -> None:
    wire.find(group)
    for assignor in ("uniform", "range"):
        answer = Member(wire, f"{group}-{assignor}", topics=[two_topics[0]]).join(1, assignor)
        assert answer.error_code == 0
    answer = Member(wire, group, topics=[two_topics[0]]).join(1, "sticky")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("version", range(7))
def test_trap_30_describing_a_new_group_the_old_way(
    wire: GroupWire, group: str, two_topics: tuple[str, uuid.UUID], version: int
) -> None:
    wire.find(group)
    member = Member(wire, group, topics=[two_topics[0]])
    member.join()
    (found,) = wire.ask(
        DescribeGroupsRequest(groups=[group]), version, DescribeGroupsResponse
    ).groups
    assert (found.group_state, found.members) == ("Dead", [])
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert found.error_message == f"Group {group} is not a classic group."


@pytest.mark.parametrize("version", range(2))
def test_trap_30_describing_an_old_group_the_new_way(
    wire: GroupWire, group: str, version: int
) -> None:
    member = wire.member(group)
    member.join()
    request = ConsumerGroupDescribeRequest(
        group_ids=[group, f"{group}-none"], include_authorized_operations=False
    )
    wire.find(f"{group}-none")
    answers = wire.ask(request, version, ConsumerGroupDescribeResponse).groups
    assert {each.error_code for each in answers} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert {each.group_id: each.error_message for each in answers} == {
        group: f"Group {group} is not a consumer group.",
        f"{group}-none": f"Group {group}-none not found.",
    }
