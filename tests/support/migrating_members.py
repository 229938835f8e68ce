"""A consumer of the classic protocol, for groups that may be classic or on the new protocol."""

from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.result import ClientInfo
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
from headrace.protocol.schemas.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from headrace.protocol.schemas.coordinator_frame import decode_versioned, encode_versioned
from tests.support.consumer_groups import GROUP, Coordinator

COOPERATIVE = 1
"""From this version of the subscription on a member says what it owns."""


@dataclass(eq=False)
class ClassicClient:
    """A consumer of the classic protocol that keeps what it may while it rejoins."""

    coordinator: Coordinator
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    owned: dict[str, list[int]] = field(default_factory=dict)
    topics: tuple[str, ...] = ("t",)
    protocols: tuple[str, ...] = ("cooperative-sticky",)

    def join(self, **fields: Any) -> JoinGroupResponse | None:
        """The answer, None while it is parked."""
        subscription = encode_versioned(
            ConsumerProtocolSubscription(
                topics=list(self.topics),
                owned_partitions=[
                    OwnedPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in self.owned.items()
                ],
            ),
            COOPERATIVE,
        )
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=fields.get("protocol_type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=fields.get("metadata", subscription))
                for name in self.protocols
            ],
        )
        result = self.coordinator.new_result()
        client = ClientInfo("classic", "/127.0.0.1", 9, self._new_id())
        try:
            self.coordinator.shard.join(request, client, self, result)
        finally:
            answers = self.coordinator.keep(result)
        for response in answers:
            assert isinstance(response, JoinGroupResponse)
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
                self.generation = response.generation_id
            return response
        return None

    def _new_id(self) -> str:
        self.coordinator.now_ms += 1
        return f"classic-{self.coordinator.now_ms}"

    def enter(self) -> JoinGroupResponse | None:
        """Both joins of a dynamic member, the first for its id."""
        if self.instance_id is None and not self.member_id:
            self.join()
        return self.join()

    def sync(self, shares: dict[str, dict[str, list[int]]] | None = None) -> ErrorCode:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(share))
                for member_id, share in (shares or {}).items()
            ],
        )
        result = self.coordinator.new_result()
        try:
            self.coordinator.shard.sync(request, self, result)
        except ApiError as error:
            return error.code
        for response in self.coordinator.keep(result):
            assert isinstance(response, SyncGroupResponse)
            if response.error_code == ErrorCode.NONE:
                assignment, _ = decode_versioned(ConsumerProtocolAssignment, response.assignment)
                self.owned = {
                    each.topic: each.partitions for each in assignment.assigned_partitions
                }
            return ErrorCode(response.error_code)
        return ErrorCode.NONE

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        result = self.coordinator.new_result()
        try:
            response = self.coordinator.shard.heartbeat(request, result)
        except ApiError as error:
            return error.code
        self.coordinator.keep(result)
        return ErrorCode(response.error_code)

    def leave(self, **identity: Any) -> list[ErrorCode]:
        leaving = MemberIdentity(
            **({"member_id": self.member_id, "group_instance_id": self.instance_id} | identity)
        )
        result = self.coordinator.new_result()
        request = LeaveGroupRequest(group_id=GROUP, members=[leaving])
        self.coordinator.shard.leave(request, self, result)
        answers = [
            answer
            for answer in self.coordinator.keep(result)
            if isinstance(answer, LeaveGroupResponse)
        ]
        return [ErrorCode(each.error_code) for each in answers[0].members]

    def follow(self) -> None:
        """What a client does with a heartbeat: rejoin while it is told to, then sync."""
        if self.beat() is ErrorCode.NONE:
            return
        self.join()
        self.sync()


def _assignment(share: dict[str, list[int]]) -> bytes:
    assigned = [
        AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in share.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)
