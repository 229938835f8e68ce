"""Two members of a classic group, each on its own connection: who waits for whom, and for what."""

from __future__ import annotations

from typing import TypeVar

from headrace.protocol.api_keys import APIS
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headrace.protocol.messages.sync_group import SyncGroupResponse
from tests.differential.masks import has_error, plain
from tests.differential.peer import SILENCE, Peer
from tests.differential.script_groups import (
    heartbeat_request,
    join_request,
    ready,
    sync_request,
)
from tests.differential.scripts import script
from tests.support.group_wire import WireConnection, subscription

_SILENCE_SECONDS = 0.3
R = TypeVar("R", bound=Message)


class Party:
    """One member of the group: sends, and notes what comes back or that nothing does."""

    def __init__(self, peer: Peer, group: str, name: str) -> None:
        self._peer = peer
        self._group = group
        self._name = name
        self._connection = WireConnection(peer.broker.port, name)
        self.member_id = ""
        self.generation = -1

    def enter(self) -> None:
        """The first of two joins: it only brings the id."""
        self.begin_join("enter")
        self.end(JoinGroupResponse, 9, "enter")

    def begin_join(self, label: str, *protocols: str) -> None:
        offered = tuple((name, subscription("read")) for name in protocols or ("range",))
        request = join_request(self._group, self.member_id, protocols=offered)
        self._connection.send(request, 9)
        if label != "enter":
            self.stays_silent("JoinGroup", 9, label)

    def begin_sync(self, share: bytes | None, label: str) -> None:
        self._connection.send(sync_request(self._group, self.generation, self.member_id, share), 5)
        self.stays_silent("SyncGroup", 5, label)

    def stays_silent(self, api: str, version: int, label: str) -> None:
        """Note whether an answer comes at once; it stays to be read."""
        silent = not self._connection.has_answer(_SILENCE_SECONDS)
        said = SILENCE if silent else "an answer"
        self._peer.note(f"{self._name}: {label}", api, version, said, good=False)

    def end(self, answer: type[R], version: int, label: str) -> R:
        found = self._connection.receive(answer, version)
        self._note(found, version, label)
        if isinstance(found, JoinGroupResponse) and found.error_code in (0, 79):
            self.member_id, self.generation = found.member_id, found.generation_id
        return found

    def ask(self, request: Message, version: int, answer: type[R], label: str) -> R:
        self._connection.send(request, version)
        return self.end(answer, version, label)

    def heartbeat(self, label: str) -> None:
        request = heartbeat_request(self._group, self.generation, self.member_id)
        self.ask(request, 4, HeartbeatResponse, label)

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self._group, members=[MemberIdentity(member_id=self.member_id)]
        )
        self.ask(request, 5, LeaveGroupResponse, "leave")

    def close(self) -> None:
        self._connection.close()

    def _note(self, found: Message, version: int, label: str) -> None:
        assert found.schema.api_key is not None
        name = APIS[found.schema.api_key].name
        answer = plain(found, version, self._peer.names)
        self._peer.note(f"{self._name}: {label}", name, version, answer, good=not has_error(found))


def _describe(peer: Peer, group: str, label: str) -> None:
    peer.ask(DescribeGroupsRequest(groups=[group]), 6, label)


@script
def two_members_share_a_group(peer: Peer) -> None:
    group = "a classic pair"
    ready(peer, group)
    first, second = Party(peer, group, "first"), Party(peer, group, "second")
    first.enter()
    first.begin_join("joins alone")
    first.end(JoinGroupResponse, 9, "joins alone")
    first.begin_sync(b"everything", "assigns alone")
    first.end(SyncGroupResponse, 5, "assigns alone")
    _describe(peer, group, "one member")
    second.enter()
    first.heartbeat("while somebody has an id only")
    second.begin_join("waits for the first")
    _describe(peer, group, "rebalancing")
    first.heartbeat("during the rebalance")
    first.begin_join("comes back")
    first.end(JoinGroupResponse, 9, "comes back")
    second.end(JoinGroupResponse, 9, "is in")
    _describe(peer, group, "before the assignment")
    second.begin_sync(None, "waits for its share")
    first.begin_sync(b"half", "assigns, and forgets the second")
    first.end(SyncGroupResponse, 5, "has its share")
    second.end(SyncGroupResponse, 5, "has nothing")
    _describe(peer, group, "stable")
    second.begin_join("joins again without a change")
    second.end(JoinGroupResponse, 9, "joins again without a change")
    second.begin_join("joins with another protocol", "range", "roundrobin")
    first.heartbeat("after the second's change")
    first.leave()
    second.end(JoinGroupResponse, 9, "leads alone")
    second.heartbeat("before its own assignment")
    second.begin_sync(b"all", "assigns to itself")
    second.end(SyncGroupResponse, 5, "assigns to itself")
    second.leave()
    second.heartbeat("after it left")
    _describe(peer, group, "empty")
    first.close()
    second.close()


@script
def a_newcomer_interrupts_the_assignment(peer: Peer) -> None:
    group = "an interrupted trio"
    ready(peer, group)
    first, second = Party(peer, group, "first"), Party(peer, group, "second")
    first.enter()
    first.begin_join("joins alone")
    first.end(JoinGroupResponse, 9, "joins alone")
    second.enter()
    second.begin_join("joins")
    first.begin_join("joins again")
    leads = first.end(JoinGroupResponse, 9, "is in")
    second.end(JoinGroupResponse, 9, "is in")
    waiting, leader = (second, first) if leads.leader == first.member_id else (first, second)
    waiting.begin_sync(None, "waits for its share")
    third = Party(peer, group, "third")
    third.enter()
    third.begin_join("comes in between")
    waiting.end(SyncGroupResponse, 5, "is called back")
    leader.begin_sync(b"all", "assigns too late")
    leader.end(SyncGroupResponse, 5, "assigns too late")
    for each in (first, second):
        each.begin_join("joins again")
    for each in (first, second, third):
        each.end(JoinGroupResponse, 9, "is in the next generation")
    for each in (first, second, third):
        each.leave()
        each.close()
