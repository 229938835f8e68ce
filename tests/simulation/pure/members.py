"""Members of a group by either protocol, as pure programs over a network that loses messages."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from headrace.core.errors import ErrorCode
from headrace.groups import consumer_group_requests, offset_requests
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.shard import GroupShard
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
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
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.simulation.pure.kernel import NodeContext
from tests.simulation.pure.shards import Request, Response
from tests.support.group_history import Commit, GroupHistory, Observed, Partition, Tenure

GROUP = "g"
TOPIC = "t"
TOPIC_ID = UUID(int=1)
COMMIT_VERSION = 9
SESSION_MS = 6_000
REBALANCE_MS = 4_000
POLL_MS = 400
TIMEOUT_MS = 1_000
JOIN_TIMEOUT_MS = REBALANCE_MS + 2_000

Operation = Callable[[GroupShard, GroupResult, object], Any]
Then = Callable[[Any], None]
"""Called with a response, an error code, or None where nothing came in time."""


class Caller:
    """One request at a time, to whoever is believed to be the coordinator."""

    def __init__(self, node: NodeContext, find_coordinator: Callable[[], str]) -> None:
        self._node = node
        self._find = find_coordinator
        self._coordinator = find_coordinator()
        # The clients of a host are numbered on: they may be taken for each other's connections.
        self._number = node.calls_made
        self._then: Then | None = None

    @property
    def is_waiting(self) -> bool:
        return self._then is not None

    def call(self, operation: Operation, then: Then, timeout_ms: int = TIMEOUT_MS) -> None:
        assert self._then is None
        self._number = number = self._node.calls_made = self._number + 1
        self._then = then
        self._node.send(self._coordinator, Request(number, operation))
        self._node.after(timeout_ms, lambda: self._answer(number, None))

    def receive(self, _source: str, message: Any) -> None:
        assert isinstance(message, Response)
        self._answer(message.number, message.value)

    def _answer(self, number: int, value: Any) -> None:
        if number != self._number or self._then is None:
            return  # late, or the second time
        if value is None or value is ErrorCode.NOT_COORDINATOR:
            self._coordinator = self._find()
        then, self._then = self._then, None
        then(value)


class Member(Caller):
    """What both kinds do: they read what is theirs, and commit how far they have come."""

    def __init__(
        self, node: NodeContext, find: Callable[[], str], history: GroupHistory, name: str
    ) -> None:
        super().__init__(node, find)
        self.history = history
        self.name = name
        self.member_id = ""
        self.epoch = 0
        self._held: dict[int, tuple[int, list[int]]] = {}  # since when, what was read
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._committing: tuple[int, dict[int, int]] | None = None
        node.after(node.random.random() * POLL_MS, self._poll)

    @property
    def owned(self) -> set[int]:
        """What it reads; not what it was given and has no position in yet."""
        return set(self._positions)

    def _now(self) -> int:
        return self._node.true_time

    def tick(self) -> None:
        """Timers are the member's own."""

    def flushed(self, end: int) -> None:
        """It writes nothing."""

    def stop(self, how: str = "ended") -> None:
        """What is under way may be done all the same."""
        if self._committing is not None:
            self._commit_ended(None)
        self._give_up(set(self._held), how)

    def _poll(self) -> None:
        self._node.after(POLL_MS * (0.5 + self._node.random.random()), self._poll)
        for partition, position in self._positions.items():
            count = self._node.random.randint(0, 2)
            self._held[partition][1].extend(range(position, position + count))
            self._positions[partition] = position + count
        if self.is_waiting:
            return
        unknown = sorted(self._held.keys() - self._positions.keys())
        behind = [p for p, at in self._positions.items() if at > self._committed[p]]
        if unknown:
            self._fetch(unknown)
        elif behind and self._node.random.random() < 0.5:
            self._commit(behind)
        else:
            self.beat()

    def beat(self) -> None:
        raise NotImplementedError

    def fenced(self) -> None:
        """It was put out: everything is another's by now."""
        self._give_up(set(self._held), "lost")

    def _take(self, partitions: set[int]) -> None:
        for partition in partitions - self._held.keys():
            self._held[partition] = (self._now(), [])

    def _give_up(self, partitions: set[int], how: str) -> None:
        for partition in sorted(partitions):
            began, offsets = self._held.pop(partition)
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
            tenure = Tenure(self.name, (TOPIC, partition), began, self._now(), how, tuple(offsets))
            self.history.tenures.append(tenure)

    def _fetch(self, partitions: list[int]) -> None:
        def then(response: Any) -> None:
            for partition, offset in fetched(response).items():
                if partition in self._held:
                    self._positions[partition] = self._committed[partition] = max(0, offset)

        self.call(fetching(partitions, self._fetches_as()), then)

    def _fetches_as(self) -> tuple[str | None, int]:
        return self.member_id, self.epoch

    def _commit(self, partitions: list[int]) -> None:
        offsets = {partition: self._positions[partition] for partition in partitions}
        self._committing = self._now(), offsets
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata="",
                        )
                        for partition, offset in offsets.items()
                    ],
                )
            ],
        )

        self.call(
            lambda shard, result, reply: offset_requests.commit(
                shard, request, COMMIT_VERSION, reply, result
            ),
            self._commit_ended,
        )

    def _commit_ended(self, response: Any) -> None:
        if self._committing is None:
            return
        (began, offsets), self._committing = self._committing, None
        errors = dict.fromkeys(offsets, True)
        if isinstance(response, OffsetCommitResponse):
            errors = {
                each.partition_index: bool(each.error_code)
                for topic in response.topics
                for each in topic.partitions
            }
        ended = self._now()
        for partition, offset in offsets.items():
            ok = not errors[partition]
            if ok and partition in self._committed:
                self._committed[partition] = offset
            commit = Commit(self.name, (TOPIC, partition), began, ended, offset, ok)
            self.history.commits.append(commit)
        if response in STARTS_ANEW:
            self.fenced()


STARTS_ANEW = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
)


class ConsumerMember(Member):
    """KIP-848: the coordinator says what is whose, in answers to heartbeats."""

    def __init__(
        self, node: NodeContext, find: Callable[[], str], history: GroupHistory, name: str
    ) -> None:
        super().__init__(node, find, history, name)
        self.member_id = name
        self._target: set[int] | None = None
        self._tells_all = True

    def beat(self) -> None:
        full = self._tells_all or self.epoch == 0
        owned = sorted(self._held)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=[TOPIC] if full else None,
            subscribed_topic_regex="" if full else None,
            topic_partitions=[OwnedTopicPartitions(topic_id=TOPIC_ID, partitions=owned)]
            if owned
            else [],
        )
        client = ClientInfo("client", "/host", 1, self.member_id)

        def operation(shard: GroupShard, result: GroupResult, reply: object) -> None:
            consumer_group_requests.consumer_heartbeat(shard, request, client, reply, result)

        self.call(operation, self._answered)

    def _answered(self, response: Any) -> None:
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            self._tells_all = True
            if response in STARTS_ANEW:
                self.fenced()
            return
        self.epoch = response.member_epoch
        self._tells_all = False
        if response.assignment is not None:
            target = {
                partition
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
            self._give_up(self._held.keys() - target, "revoked")
            self._take(target)

    def fenced(self) -> None:
        super().fenced()
        self.epoch, self._tells_all = 0, True

    def leave(self) -> None:
        """Tells it, and does not wait for an answer."""
        self.stop("revoked")
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=-1
        )
        client = ClientInfo("client", "/host", 1, self.member_id)
        self._then = None
        self.call(
            lambda shard, result, reply: consumer_group_requests.consumer_heartbeat(
                shard, request, client, reply, result
            ),
            lambda _: None,
        )


class ClassicMember(Member):
    """JoinGroup and SyncGroup: one of the members says what is whose; eager."""

    def __init__(
        self,
        node: NodeContext,
        find: Callable[[], str],
        history: GroupHistory,
        name: str,
        partitions: int,
    ) -> None:
        super().__init__(node, find, history, name)
        self._partitions = partitions
        self._is_member = False

    def _fetches_as(self) -> tuple[str | None, int]:
        return None, -1

    def beat(self) -> None:
        if not self._is_member:
            self._join()
            return
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.epoch, member_id=self.member_id
        )

        def then(response: Any) -> None:
            if response is ErrorCode.REBALANCE_IN_PROGRESS:
                self._give_up(set(self._held), "revoked")
                self._is_member = False
            elif response in STARTS_ANEW:
                self.fenced()
            else:
                assert response is None or isinstance(response, HeartbeatResponse | ErrorCode)

        self.call(lambda shard, result, _: shard.heartbeat(request, result), then)

    def fenced(self) -> None:
        super().fenced()
        self._is_member, self.member_id = False, ""

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client = ClientInfo("client", "/host", 9, f"{self.name}-{self._number}")

        def then(response: Any) -> None:
            if not isinstance(response, JoinGroupResponse):
                if response in STARTS_ANEW:
                    self.fenced()
            elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            elif response.error_code == ErrorCode.NONE:
                self.member_id, self.epoch = response.member_id, response.generation_id
                self._sync(response)
            elif ErrorCode(response.error_code) in STARTS_ANEW:
                self.fenced()

        self.call(
            lambda shard, result, reply: shard.join(request, client, reply, result),
            then,
            JOIN_TIMEOUT_MS,
        )

    def _sync(self, joined: JoinGroupResponse) -> None:
        shares: dict[str, list[int]] = {each.member_id: [] for each in joined.members}
        names = sorted(shares)
        for partition in range(self._partitions if names else 0):
            shares[names[partition % len(names)]].append(partition)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=bytes(share))
                for name, share in shares.items()
            ],
        )

        def then(response: Any) -> None:
            if isinstance(response, SyncGroupResponse) and not response.error_code:
                self._is_member = True
                self._take(set(response.assignment))
            elif response in STARTS_ANEW:
                self.fenced()

        self.call(lambda shard, result, reply: shard.sync(request, reply, result), then, 3_000)

    def leave(self) -> None:
        """Tells it, and does not wait for an answer."""
        self.stop("revoked")
        request = LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)]
        )
        self._then = None
        self.call(lambda shard, result, reply: shard.leave(request, reply, result), lambda _: None)


class Watcher(Caller):
    """Asks what is committed, as an operator does."""

    def __init__(
        self, node: NodeContext, find: Callable[[], str], history: GroupHistory, partitions: int
    ) -> None:
        super().__init__(node, find)
        self._history = history
        self._partitions = list(range(partitions))
        node.after(0, self._look)

    def _look(self) -> None:
        self._node.after(1_500, self._look)
        if self.is_waiting:
            return
        began = self._node.true_time

        def then(response: Any) -> None:
            ended = self._node.true_time
            for partition, offset in fetched(response).items():
                where: Partition = (TOPIC, partition)
                self._history.observed.append(Observed(where, began, ended, offset))

        self.call(fetching(self._partitions, (None, -1)), then)

    def tick(self) -> None:
        """Timers are its own."""

    def flushed(self, end: int) -> None:
        """It writes nothing."""


def fetching(partitions: list[int], member: tuple[str | None, int]) -> Operation:
    request = OffsetFetchRequestGroup(
        group_id=GROUP,
        member_id=member[0],
        member_epoch=member[1],
        topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)],
    )
    return lambda shard, _result, _reply: offset_requests.fetch(shard, request)


def fetched(response: Any) -> dict[int, int]:
    if not isinstance(response, OffsetFetchResponseGroup) or response.error_code:
        return {}
    return {
        each.partition_index: each.committed_offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code
    }
