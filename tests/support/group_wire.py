"""Raw requests of consumer groups: one connection per member, answers awaited when a test wants.

JoinGroup and SyncGroup stay unanswered until others come, so sending and receiving are apart.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from headrace.protocol.api_keys import response_class
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
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
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

ANSWER_SECONDS = 8.0
SETTLE_SECONDS = 20.0
NOT_YET = (14, 15, 16)  # loading, no coordinator yet, not the coordinator
M = TypeVar("M", bound=Message)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer, version 0; Kafka leaves a join with other bytes unanswered."""
    named = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


class WireConnection:
    """One connection; requests are answered in their order."""

    def __init__(self, port: int, client_id: str) -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def send(self, request: Message, version: int) -> None:
        """Send and do not wait."""
        self._correlation_id += 1
        self._socket.sendall(
            encode_request(request, version, self._correlation_id, self._client_id)
        )

    def receive(self, answer: type[M], version: int, seconds: float = ANSWER_SECONDS) -> M:
        """The next answer; TimeoutError when none comes."""
        self._socket.settimeout(seconds)
        size = struct.unpack(">i", self._read(4))[0]
        return decode_response(answer, self._read(size), version)[1]

    def ask(self, request: Message, version: int, answer: type[M]) -> M:
        """One request and its answer."""
        assert request.schema.api_key is not None
        assert response_class(request.schema.api_key) is answer
        self.send(request, version)
        return self.receive(answer, version)

    def has_answer(self, seconds: float) -> bool:
        """Whether something arrives within the time; it is not taken."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionResetError("the broker hung up")
            found += part
        return bytes(found)


class GroupWire:
    """All connections of one test, and the requests that need no membership."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[WireConnection] = []
        self._common: WireConnection | None = None

    def connect(self, client_id: str = "wire") -> WireConnection:
        made = WireConnection(self._port, client_id)
        self._connections.append(made)
        return made

    def ask(self, request: Message, version: int, answer: type[M]) -> M:
        """Ask over the connection that is nobody's in particular."""
        if self._common is None:
            self._common = self.connect()
        return self._common.ask(request, version, answer)

    def member(self, group: str, **settings: object) -> ClassicMember:
        """A classic member on a connection of its own, not yet joined."""
        self.find(group)
        return ClassicMember(self.connect(), group, **settings)  # type: ignore[arg-type]  # fields

    def find(self, *groups: str) -> FindCoordinatorResponse:
        """The coordinators of these groups, once they are ready to serve."""
        request = FindCoordinatorRequest(coordinator_keys=list(groups))
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]

        def ready() -> FindCoordinatorResponse | None:
            found = self.ask(request, 4, FindCoordinatorResponse)
            if any(each.error_code in NOT_YET for each in found.coordinators):
                return None
            loaded = self.ask(OffsetFetchRequest(groups=asked), 8, OffsetFetchResponse)
            return None if any(each.error_code in NOT_YET for each in loaded.groups) else found

        return until(ready, f"coordinators of {groups}")

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The committed offset of one partition, -1 when there is none."""
        asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])]
        )

        def loaded() -> int | None:
            found = self.ask(request, 8, OffsetFetchResponse).groups[0]
            if found.error_code in NOT_YET:
                return None
            assert found.error_code == 0
            return found.topics[0].partitions[0].committed_offset

        return until(loaded, f"offsets of {group}")

    def close(self) -> None:
        for each in self._connections:
            each.close()


@dataclass(slots=True)
class ClassicMember:
    """One member of a classic group: what it knows of itself, and its requests."""

    connection: WireConnection
    group: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 10_000
    protocol_type: str = "consumer"
    protocols: Mapping[str, bytes] = field(default_factory=lambda: {"range": subscription("any")})

    def begin_join(self, version: int = 9) -> None:
        offered = [
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in self.protocols.items()
        ]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=offered,
        )
        self.connection.send(request, version)

    def end_join(self, version: int = 9, seconds: float = ANSWER_SECONDS) -> JoinGroupResponse:
        found = self.connection.receive(JoinGroupResponse, version, seconds)
        if found.error_code in (0, 79):
            self.member_id = found.member_id
            self.generation = found.generation_id
        return found

    def join_once(self, version: int = 9) -> JoinGroupResponse:
        """One request and its answer, whatever it is."""
        self.begin_join(version)
        return self.end_join(version)

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join, with a second request where the first only brings a member id."""
        found = self.join_once(version)
        return self.join_once(version) if found.error_code == 79 else found

    def begin_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> None:
        given = [
            SyncGroupRequestAssignment(member_id=member, assignment=share)
            for member, share in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=next(iter(self.protocols)),
            assignments=given,
        )
        self.connection.send(request, version)

    def end_sync(self, version: int = 5, seconds: float = ANSWER_SECONDS) -> SyncGroupResponse:
        return self.connection.receive(SyncGroupResponse, version, seconds)

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, version: int = 5
    ) -> SyncGroupResponse:
        self.begin_sync(assignments, version)
        return self.end_sync(version)

    def heartbeat(self, version: int = 4) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return self.connection.ask(request, version, HeartbeatResponse).error_code

    def leave(self, version: int = 5) -> LeaveGroupResponse:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(
            group_id=self.group, member_id=self.member_id, members=[identity]
        )
        return self.connection.ask(request, version, LeaveGroupResponse)

    def commit(self, topic: str, offset: int, version: int = 9) -> int:
        """Commit one offset of partition 0; the error code."""
        request = commit_request(
            self.group,
            topic,
            {0: offset},
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
        )
        found = self.connection.ask(request, version, OffsetCommitResponse)
        return found.topics[0].partitions[0].error_code


def commit_request(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    topic_id: UUID | None = None,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    """Offsets of one topic, by its id where one is given."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    named = OffsetCommitRequestTopic(
        name=topic, topic_id=topic_id or UUID(int=0), partitions=partitions
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[named],
    )


def join_all(members: Iterable[ClassicMember]) -> list[JoinGroupResponse]:
    """Members that know their ids join one rebalance together."""
    joining = list(members)
    for each in joining:
        each.begin_join()
    return [each.end_join() for each in joining]


_T = TypeVar("_T")


def until(ask: Callable[[], _T | None], what: str, seconds: float = SETTLE_SECONDS) -> _T:
    """Ask again until the answer is not None."""
    deadline = time.monotonic() + seconds
    while (found := ask()) is None:
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return found
