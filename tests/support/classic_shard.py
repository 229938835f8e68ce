"""One classic group step by step: requests with few words, answers by who waits for them."""

from dataclasses import dataclass, field
from typing import TypeVar

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.records import GroupRecord, decode
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
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.schemas.coordinator_frame import encode_versioned

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)
M = TypeVar("M", bound=Message)


def subscribed(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


@dataclass
class ClassicShard:
    """A shard, its log, the time, and the answers that have come, by token."""

    settings: GroupSettings = AT_ONCE
    now_ms: int = 1_000
    shard: GroupShard = field(default_factory=GroupShard)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    answers: dict[str, Message] = field(default_factory=dict)

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def new_result(self) -> GroupResult:
        return GroupResult(self.now_ms, self.now_ms, self.settings)

    def finish(self, result: GroupResult) -> None:
        self.log += result.encoded
        for reply, response in result.replies:
            assert isinstance(reply, str)
            self.answers[reply] = response

    def join(
        self,
        reply: str,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
        protocol_type: str = "consumer",
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        """Send a join; whoever comes without an id would get `<token>-id`."""
        self.answers.pop(reply, None)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ],
        )
        result = self.new_result()
        self.shard.join(
            request, ClientInfo("client", "/host", version, f"{reply}-id"), reply, result
        )
        self.finish(result)

    def enter(self, reply: str, *, instance_id: str | None = None) -> str:
        """Both joins of a new member; its id."""
        self.join(reply, instance_id=instance_id)
        if instance_id is None:
            assert self.joined(reply).error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.join(reply, f"{reply}-id")
        return f"{reply}-id"

    def joined(self, reply: str) -> JoinGroupResponse:
        return self._answer(reply, JoinGroupResponse)

    def sync(
        self,
        reply: str,
        shares: dict[str, bytes] | None = None,
        *,
        member_id: str | None = None,
        generation: int | None = None,
        instance_id: str | None = None,
    ) -> None:
        self.answers.pop(reply, None)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=f"{reply}-id" if member_id is None else member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=self.group.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=share)
                for member, share in (shares or {}).items()
            ],
        )
        result = self.new_result()
        self.shard.sync(request, reply, result)
        self.finish(result)

    def synced(self, reply: str) -> SyncGroupResponse:
        return self._answer(reply, SyncGroupResponse)

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        try:
            self.shard.heartbeat(request, self.new_result())
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        """The outcome for each (member id, instance id)."""
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ],
        )
        result = self.new_result()
        self.shard.leave(request, "leaving", result)
        self.finish(result)
        answers = self._answer("leaving", LeaveGroupResponse).members
        return [answer.error_code for answer in answers]

    def advance(self, ms: int) -> None:
        """Let time pass, with a look at the group at each of its deadlines."""
        end = self.now_ms + ms
        while True:
            deadline = self.shard.next_deadline_ms(GROUP)
            if deadline is None or deadline > end:
                break
            self.now_ms = max(self.now_ms, deadline)
            result = self.new_result()
            self.shard.timer(GROUP, result)
            self.finish(result)
            later = self.shard.next_deadline_ms(GROUP)
            assert later is None or later > deadline, "the deadline does not move"
        self.now_ms = end

    def stable_pair(self) -> tuple[str, str]:
        """A stable group of two; the first one leads."""
        first = self.enter("a")
        self.advance(0)
        self.sync("a", {first: b"all"})
        second = self.enter("b")
        self.join("a", first)
        self.sync("b")
        self.sync("a", {first: b"one", second: b"two"})
        return first, second

    def replayed(self) -> GroupShard:
        """What a restart makes of the log."""
        shard = GroupShard()
        for key, value in self.log:
            record = decode(key, value)
            assert isinstance(record, GroupRecord)
            shard.replay(record)
        return shard

    def _answer(self, reply: str, kind: type[M]) -> M:
        answer = self.answers[reply]
        assert isinstance(answer, kind)
        return answer
