"""Consumers of the classic protocol against a shard without I/O: time, log and faults are a test's.

`ClassicWorld` owns the clock and the log (as bytes); each `ClassicConsumer` does what a real
client does with every answer it gets: joins with the id it was given, assigns when it leads,
syncs, heartbeats, and joins again when it is told to.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from headrace.coordinator.result import PendingReply, Reply
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.groups.offset_requests import commit
from headrace.groups.records import decode
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.schemas.coordinator_frame import encode_versioned

GROUP = "g"
TOPIC = "t"
PROTOCOL = "roundrobin"
SESSION_MS = 10_000
REBALANCE_MS = 20_000
HEARTBEAT_MS = 3_000
JOIN_VERSION = 9
SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 0)


@dataclass
class ClassicConsumer:
    """One client; `assignment` is what it believes to own, None while it owns nothing."""

    world: "ClassicWorld"
    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    assignment: frozenset[int] | None = None
    alive: bool = True
    fenced: bool = False
    waits_for: Reply | None = None
    next_heartbeat_ms: int = 0

    def join(self) -> None:
        self.assignment = None
        self.waits_for = reply = self.world.token(self)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=SUBSCRIPTION)],
        )
        client = ClientInfo(self.name, "/127.0.0.1", JOIN_VERSION, self.world.new_id(self))
        result = self.world.new_result()
        self.world.shard.join(request, client, reply, result)
        self.world.append_and_reply(result)

    def on_response(self, response: Message) -> None:
        self.waits_for = None
        if isinstance(response, JoinGroupResponse):
            self._joined(response)
        elif isinstance(response, SyncGroupResponse):
            self._synced(response)

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
            return
        if response.error_code:
            self._rejoin(ErrorCode(response.error_code))
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        shares: list[SyncGroupRequestAssignment] = []
        if response.leader == self.member_id and not response.skip_assignment:
            members = sorted(each.member_id for each in response.members)
            shares = [
                SyncGroupRequestAssignment(
                    member_id=member,
                    assignment=bytes(range(place, self.world.partitions, len(members))),
                )
                for place, member in enumerate(members)
            ]
        self._sync(shares)

    def _sync(self, shares: list[SyncGroupRequestAssignment]) -> None:
        self.waits_for = reply = self.world.token(self)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        result = self.world.new_result()
        try:
            self.world.shard.sync(request, reply, result)
        except ApiError as error:
            self.waits_for = None
            self._rejoin(error.code)
        self.world.append_and_reply(result)

    def _synced(self, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._rejoin(ErrorCode(response.error_code))
            return
        self.assignment = frozenset(response.assignment)
        self.next_heartbeat_ms = self.world.now_ms + HEARTBEAT_MS
        self.world.owns(self)

    def _rejoin(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
            self.assignment = None
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.join()

    def heartbeat(self) -> None:
        self.next_heartbeat_ms = self.world.now_ms + HEARTBEAT_MS
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        try:
            self.world.shard.heartbeat(request, self.world.new_result())
        except ApiError as error:
            self._rejoin(error.code)

    def leave(self) -> None:
        self.alive = False
        self.assignment = None
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        result = self.world.new_result()
        try:
            request = LeaveGroupRequest(group_id=GROUP, members=[identity])
            self.world.shard.leave(request, self.world.token(None), result)
        except ApiError:
            return  # the group does not know it any more: gone either way
        self.world.append_and_reply(result)

    def commit(self, partition: int, offset: int) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        result = self.world.new_result()
        try:
            commit(self.world.shard, request, 9, self.world.token(None), result)
        except ApiError as error:
            return error.code
        self.world.append_and_reply(result)
        return ErrorCode.NONE


@dataclass
class ClassicWorld:
    """A shard, its log in bytes, the clock, and every consumer there ever was."""

    partitions: int = 12
    settings: GroupSettings = field(default_factory=GroupSettings)
    shard: GroupShard = field(default_factory=GroupShard)
    now_ms: int = 1_000_000
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    consumers: list[ClassicConsumer] = field(default_factory=list)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Who was given a partition, by generation and partition."""
    _tokens: dict[int, ClassicConsumer | None] = field(default_factory=dict)
    _ids: int = 0
    _running: bool = False
    _answers: list[PendingReply] = field(default_factory=list)

    def start(self, instance_id: str | None = None) -> ClassicConsumer:
        consumer = ClassicConsumer(self, f"c{len(self.consumers)}", instance_id)
        self.consumers.append(consumer)
        consumer.join()
        return consumer

    def token(self, consumer: ClassicConsumer | None) -> int:
        self._tokens[len(self._tokens)] = consumer
        return len(self._tokens) - 1

    def new_id(self, consumer: ClassicConsumer) -> str:
        self._ids += 1
        return f"{consumer.instance_id or consumer.name}-{self._ids:04}"

    def new_result(self) -> GroupResult:
        return GroupResult(self.now_ms, self.now_ms, self.settings)

    def append_and_reply(self, result: GroupResult) -> None:
        """Append, and deliver the answers, one after the other."""
        self.log += result.encoded
        self._answers += result.replies
        if self._running:
            return
        self._running = True
        while self._answers:
            reply, response = self._answers.pop(0)
            assert isinstance(reply, int)
            consumer = self._tokens[reply]
            # Whoever has died, or asked again since, does not read this answer.
            if consumer is not None and consumer.alive and consumer.waits_for == reply:
                consumer.on_response(response)
        self._running = False

    def owns(self, consumer: ClassicConsumer) -> None:
        """One owner per partition per generation."""
        for partition in consumer.assignment or ():
            key = (consumer.generation, partition)
            owner = self.owners.setdefault(key, _whose(consumer.member_id))
            assert owner == _whose(consumer.member_id), f"{key} has two owners"

    def advance(self, ms: int) -> None:
        """Let time pass: heartbeats of whoever lives, and what the group does by itself."""
        end = self.now_ms + ms
        while True:
            due = [
                consumer.next_heartbeat_ms
                for consumer in self.consumers
                if consumer.alive and not consumer.fenced and consumer.waits_for is None
            ]
            deadline = self.shard.next_deadline_ms(GROUP)
            times = [at for at in (*due, deadline) if at is not None and at <= end]
            if not times:
                break
            self.now_ms = max(self.now_ms, min(times))
            for consumer in self.consumers:
                if (
                    consumer.alive
                    and not consumer.fenced
                    and consumer.waits_for is None
                    and consumer.next_heartbeat_ms <= self.now_ms
                ):
                    consumer.heartbeat()
            if deadline is not None and deadline <= self.now_ms:
                result = self.new_result()
                self.shard.timer(GROUP, result)
                self.append_and_reply(result)
                later = self.shard.next_deadline_ms(GROUP)
                assert later is None or later > deadline, "time stands still"
        self.now_ms = end

    def replayed(self) -> GroupShard:
        """The shard that a restart builds from the log."""
        shard = GroupShard()
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            shard.replay(record)
        return shard

    def restart(self) -> None:
        """The broker is killed and comes back; parked requests are sent again."""
        self.shard = self.replayed()
        self.shard.loaded(self.new_result())
        for consumer in self.consumers:
            if consumer.alive and not consumer.fenced and consumer.waits_for is not None:
                consumer.waits_for = None
                consumer.join()

    def living(self) -> list[ClassicConsumer]:
        return [each for each in self.consumers if each.alive and not each.fenced]

    def assert_shared_evenly(self) -> None:
        """Every partition has exactly one owner among the living, and nobody has much more."""
        counts = Counter(len(each.assignment or ()) for each in self.living())
        owned = Counter(p for each in self.living() for p in each.assignment or ())
        assert owned == dict.fromkeys(range(self.partitions), 1)
        assert max(counts) - min(counts) <= 1, f"uneven: {counts}"

    def committed(self) -> dict[int, int]:
        offsets = self.shard.offsets.of(GROUP)
        return {key.partition: each.offset for key, each in offsets.items() if key.topic == TOPIC}


def partition(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)


def _whose(member_id: str) -> str:
    """A static member keeps its share under a new id: the instance is the owner."""
    return re.sub(r"-\d+$", "", member_id) if member_id.startswith("static") else member_id
