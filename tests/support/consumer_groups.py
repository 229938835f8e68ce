"""A coordinator shard without a broker, and members that behave as clients do.

Every record the shard writes also goes, as bytes, into a second shard (`restarted`), as a
restart would read it; the two must always be equal.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId, Offset
from headrace.groups import consumer_group_requests
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.settings import ConsumerGroupSettings
from headrace.groups.records import GroupRecord, decode
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.metadata.image import Image, PartitionRegistration, Topic
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

GROUP = "group"
STARTS_ANEW = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Errors after which a member gives everything up and joins again."""

_PARTITION = PartitionRegistration(NodeId(0), 0, 0, (0,), (0,))


class Coordinator:
    """One shard, its topics and its clock."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(consumer=ConsumerGroupSettings(**settings))
        self.shard = GroupShard()
        self.restarted = GroupShard()
        """What a restart would find: fed with bytes, record by record."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.image = Image("cluster", Offset(0))
        self.now_ms = 0
        self._ids = 0

    # Topics

    def set_topic(self, name: str, partitions: int) -> UUID:
        """Create a topic, or give it more partitions."""
        known = self.image.topics.get(name)
        if known is None:
            self._ids += 1
        topic_id = UUID(int=self._ids) if known is None else known.id
        topic = Topic(name, topic_id, (_PARTITION,) * partitions)
        self._topics({**self.image.topics, name: topic})
        return topic_id

    def delete_topic(self, name: str) -> None:
        self._topics({key: topic for key, topic in self.image.topics.items() if key != name})

    def _topics(self, topics: dict[str, Topic]) -> None:
        self.image = replace(
            self.image,
            offset=Offset(self.image.offset + 1),
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
        )

    def partitions_of(self, names: Iterable[str]) -> set[TopicIdPartition]:
        return {
            TopicIdPartition(topic.id, number)
            for name in names
            if (topic := self.image.topics.get(name)) is not None
            for number in range(len(topic.partitions))
        }

    # Steps

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def new_result(self) -> GroupResult:
        return GroupResult(self.now_ms, self.now_ms, self.settings, self.image)

    def keep(self, result: GroupResult) -> list[Any]:
        """Write what a step decided; return its answers."""
        self.log += result.encoded
        for key, value in result.encoded:
            _replay(self.restarted, key, value)
        return [answer.response for answer in result.replies]

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, *, api_version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        """Raises ApiError where the broker would answer with an error."""
        result = self.new_result()
        client = ClientInfo("client", "/127.0.0.1", api_version, "new-member")
        consumer_group_requests.consumer_heartbeat(self.shard, request, client, None, result)
        answers = self.keep(result)
        assert isinstance(answers[-1], ConsumerGroupHeartbeatResponse)
        return answers[-1]

    def advance(self, ms: int) -> None:
        """Let time pass, looking at the group whenever it asks to be looked at."""
        end_ms = self.now_ms + ms
        while True:
            deadline_ms = self.shard.next_deadline_ms(GROUP)
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            result = self.new_result()
            self.shard.timer(GROUP, result)
            self.keep(result)
        self.now_ms = end_ms

    def restart(self) -> None:
        """Go on with the shard that the log gives."""
        self.shard = GroupShard()
        for key, value in self.log:
            _replay(self.shard, key, value)
        self.shard.loaded(self.new_result())


def _replay(shard: GroupShard, key: bytes, value: bytes | None) -> None:
    record = decode(key, value)
    assert isinstance(record, GroupRecord)
    shard.replay(record)


@dataclass
class Client:
    """A consumer: what it believes to own, and what it is on its way to."""

    member_id: str
    topics: list[str] = field(default_factory=list)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[TopicIdPartition] = field(default_factory=set)
    target: set[TopicIdPartition] = field(default_factory=set)
    interval_ms: int = 0
    must_ack: bool = False
    must_tell: bool = True
    """Its subscription, or, after a failure, everything."""

    def request(self) -> ConsumerGroupHeartbeatRequest:
        full = self.must_tell or self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if full else -1,
            subscribed_topic_names=list(self.topics) if full else None,
            subscribed_topic_regex=(self.regex or "") if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=owned_topics(self.owned) if full or self.must_ack else None,
        )

    def beat(self, coordinator: Coordinator, *, answer_lost: bool = False) -> ErrorCode:
        """One heartbeat; a member that is fenced gives everything up and starts anew."""
        sent = self.request()
        try:
            response = coordinator.heartbeat(sent)
        except ApiError as error:
            if error.code in STARTS_ANEW:
                self.drop()
            return error.code
        if answer_lost:
            # What a client does that heard nothing: it sends everything again.
            self.must_tell = True
            return ErrorCode.NONE
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        self.must_tell = False
        if sent.topic_partitions is not None:
            self.must_ack = False
        if response.assignment is not None:
            self.target = {
                TopicIdPartition(topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
        return ErrorCode.NONE

    def reconcile(self) -> None:
        """Give up what is not in the target, take what is; the next heartbeat says so."""
        if self.owned != self.target:
            self.owned = set(self.target)
            self.must_ack = True

    def subscribe(self, topics: list[str], regex: str | None = None) -> None:
        self.topics, self.regex, self.must_tell = topics, regex, True

    def drop(self) -> None:
        self.epoch, self.must_tell, self.must_ack = 0, True, False
        self.owned, self.target = set(), set()

    def leave(self, coordinator: Coordinator, epoch: int = -1) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )
        coordinator.heartbeat(request)
        self.drop()


def owned_topics(owned: Iterable[TopicIdPartition]) -> list[OwnedTopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [
        OwnedTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]


def settle(coordinator: Coordinator, clients: Iterable[Client], rounds: int = 40) -> int:
    """Let everybody heartbeat and do as told until nothing moves; returns the rounds it took."""
    members = list(clients)
    for turn in range(rounds):
        before = len(coordinator.log)
        moved = False
        for client in members:
            client.beat(coordinator)
            moved |= client.owned != client.target
            client.reconcile()
        coordinator.advance(100)
        if not moved and len(coordinator.log) == before:
            return turn
    raise AssertionError(f"the group still moves after {rounds} rounds")
