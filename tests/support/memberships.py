"""Hands for the membership machines: steps by name, answers in one line, and a program that obeys.

group = Driven(ConsumerMembership(...))
request = group.send(ConsumerGroupHeartbeatRequest)
group.answer(heartbeat_answer(epoch=1, assigned={TOPIC_ID: [0, 1]}))
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from headrace.client.core.backoff import Backoff
from headrace.client.core.membership import (
    Action,
    CoordinatorRequest,
    FindTopics,
    FoundTopic,
    Membership,
    PartitionsChange,
    WaitUntil,
)
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse
from tests.support.client_core import FixedRandomness

M = TypeVar("M", bound=Message)


def steady_backoff() -> Backoff:
    """100 ms, then twice as long each time, without jitter."""
    return Backoff(100, 1000, FixedRandomness())


class MembershipDriver:
    """A membership with a clock, stepped by hand; notes what the program is told."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.now_ms = 0.0
        self.told: list[tuple[PartitionsChange, list[int]]] = []
        membership.poll_timer.begin()

    def next_action(self) -> Action:
        return self.membership.next_action(self.now_ms)

    def send(self, kind: type[M]) -> M:
        """The request that is due now, which must be of this kind."""
        action = self.next_action()
        assert isinstance(action, CoordinatorRequest), action
        assert isinstance(action.request, kind), action.request
        return action.request

    def respond(self, outcome: Message | HeadraceError) -> None:
        self.membership.on_response(outcome, self.now_ms)

    def wait(self) -> float:
        """Nothing is due; how long until something is."""
        action = self.next_action()
        assert isinstance(action, WaitUntil), action
        return action.until_ms - self.now_ms

    def look_up(self, topics: Sequence[FoundTopic] | None) -> FindTopics:
        """Answer the look-up that is due now."""
        action = self.next_action()
        assert isinstance(action, FindTopics), action
        self.membership.topics_found(topics, self.now_ms)
        return action

    def poll(self) -> list[tuple[PartitionsChange, list[int]]]:
        """The program polls and hears everything there is; the partition numbers of each."""
        heard: list[tuple[PartitionsChange, list[int]]] = []
        self.membership.poll_timer.begin()
        self.membership.rejoin_if_stale()
        while (notice := self.membership.notice()) is not None:
            heard.append((notice.change, [each.partition for each in notice.partitions]))
            self.membership.acknowledge(notice)
            self.membership.rejoin_if_stale()
        self.told += heard
        return heard

    @property
    def owned(self) -> list[int]:
        return [each.partition for each in self.membership.owned]


def heartbeat_response(
    *,
    epoch: int = 1,
    assigned: Mapping[UUID, Sequence[int]] | None = None,
    interval_ms: int = 5_000,
    error_code: int = 0,
    error_message: str | None = None,
) -> ConsumerGroupHeartbeatResponse:
    """An answer of the coordinator; None assigned means that nothing has changed."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error_code,
        error_message=error_message,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in assigned.items()
            ]
        ),
    )


def join_response(
    *,
    generation: int = 1,
    member_id: str = "me",
    leader: str = "other",
    assignor: str = "range",
    members: Mapping[str, bytes] | None = None,
    error_code: int = 0,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """An answer to a join."""
    return JoinGroupResponse(
        error_code=error_code,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name=assignor,
        leader=leader,
        member_id=member_id,
        skip_assignment=skip_assignment,
        members=[
            JoinGroupResponseMember(member_id=name, metadata=metadata)
            for name, metadata in (members or {}).items()
        ],
    )


def sync_response(assignment: bytes = b"", error_code: int = 0) -> SyncGroupResponse:
    """An answer to a sync."""
    return SyncGroupResponse(
        error_code=error_code,
        protocol_type="consumer",
        protocol_name="range",
        assignment=assignment,
    )


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]
