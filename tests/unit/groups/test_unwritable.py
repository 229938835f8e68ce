"""Steps whose records cannot be written: no trace of them, and nobody left without an answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import ErrorCode, MalformedMessage
from headrace.groups import offset_requests
from headrace.groups import result as step_module
from headrace.groups.classic import rebalance
from headrace.groups.classic.group import State
from headrace.groups.names import NAME_LENGTH_MAX
from headrace.groups.records import GroupRecord, encode
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.schemas.group_offsets import GroupMetadataValue
from tests.support.classic_shard import ClassicShard
from tests.support.consumer_groups import Client, Coordinator
from tests.support.group_wire import commit_request
from tests.support.migrating_members import ClassicClient
from tests.support.nodes import running_node
from tests.unit.groups.test_group_coordinator import Caller, join_request

TOO_LONG = NAME_LENGTH_MAX + 1


def refuse_records(monkeypatch: pytest.MonkeyPatch, bad: Callable[[GroupRecord], bool]) -> None:
    def failing(record: GroupRecord) -> tuple[bytes, bytes | None]:
        if bad(record):
            raise MalformedMessage("a record that cannot be encoded")
        return encode(record)

    monkeypatch.setattr(step_module, "encode", failing)


def has_members(record: GroupRecord) -> bool:
    return isinstance(record.value, GroupMetadataValue) and bool(record.value.members)


def joined_pair() -> ClassicShard:
    """Members `a` (the leader) and `b`, who have to sync."""
    shard = ClassicShard()
    shard.enter("a")
    shard.advance(1)
    shard.enter("b")
    shard.join("a", "a-id")
    assert shard.group.state is State.COMPLETING_REBALANCE
    return shard


def test_an_assignment_that_cannot_be_written_is_told_to_all_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = joined_pair()
    before = len(shard.log)
    shard.sync("b")
    refuse_records(monkeypatch, has_members)
    shard.sync("a", {"a-id": b"1", "b-id": b"2"})
    assert shard.synced("a").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert shard.synced("b").error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.group.state is State.PREPARING_REBALANCE
    assert len(shard.log) == before
    monkeypatch.undo()
    shard.join("b", "b-id")
    shard.join("a", "a-id")
    shard.sync("b")
    shard.sync("a", {"a-id": b"1", "b-id": b"2"})
    assert shard.synced("b").assignment == b"2"


def test_a_static_member_that_cannot_be_written_takes_nobodys_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = ClassicShard()
    shard.enter("a", instance_id="i")
    shard.advance(6_000)
    shard.sync("a", {"a-id": b"1"}, instance_id="i")
    refuse_records(monkeypatch, has_members)
    with pytest.raises(MalformedMessage):
        shard.join("b", instance_id="i")
    assert shard.group.state is State.STABLE
    assert list(shard.group.members) == ["a-id"]
    assert shard.group.instances == {"i": "a-id"}


def test_of_a_commit_that_cannot_be_written_whole_no_part_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = ClassicShard()
    refuse_records(monkeypatch, lambda record: getattr(record.key, "partition", 0) == 2)
    result = shard.new_result()
    request = commit_request("g", "t", {0: 1, 1: 1, 2: 1})
    with pytest.raises(MalformedMessage):
        offset_requests.commit(shard.shard, request, 9, "commit", result)
    assert (result.records, result.encoded, result.replies) == ([], [], [])
    assert (len(shard.shard.offsets), shard.shard.groups) == (0, {})


def test_a_group_that_cannot_be_written_does_not_come_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = ClassicShard()
    refuse_records(monkeypatch, lambda _: True)
    with pytest.raises(MalformedMessage):
        shard.join("a")
    assert shard.shard.groups == {}


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group_and_who_waits_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = Coordinator()
    coordinator.set_topic("t", 4)
    ClassicClient(coordinator).enter()
    group = next(iter(coordinator.shard.groups.values()))
    waiting = group.waiting_replies()
    assert waiting
    written = 0

    def third(_: GroupRecord) -> bool:
        nonlocal written
        written += 1
        return written == 3

    refuse_records(monkeypatch, third)
    with pytest.raises(MalformedMessage):
        Client("m", ["t"]).beat(coordinator)
    assert next(iter(coordinator.shard.groups.values())) is group
    assert group.waiting_replies() == waiting


async def test_what_does_not_fit_a_record_is_refused_where_it_enters(tmp_path: Path) -> None:
    quick = running_node(tmp_path, group_initial_rebalance_delay_ms="0")
    async with quick as node, Caller(node) as client:
        await client.prepare()
        answer = await client.call_as("c" * 32_760, join_request(), 7)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        longest = await client.call_as("é" * NAME_LENGTH_MAX, join_request(), 3)
        assert isinstance(longest, JoinGroupResponse)
        assert longest.error_code == ErrorCode.NONE
        for name in ("member_id", "instance_id", "rack_id", "subscribed_topic_regex"):
            answer = await client.call(heartbeat_request(**{name: "x" * 2 * TOO_LONG}), 1)
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            assert answer.error_code == ErrorCode.INVALID_REQUEST, name
        long_topics = heartbeat_request(subscribed_topic_names=["x" * TOO_LONG])
        answer = await client.call(long_topics, 1)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def heartbeat_request(**changes: Any) -> ConsumerGroupHeartbeatRequest:
    usual: dict[str, Any] = {
        "group_id": "other",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**(usual | changes))


async def test_a_decision_that_fails_half_way_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the record of the empty group, after the members' requests were taken out of it."""
    slow = running_node(tmp_path, group_initial_rebalance_delay_ms="60000")
    async with slow as node, Caller(node) as waiting, Caller(node) as leaving:
        await waiting.prepare()
        asked = await waiting.call(join_request(), 7)
        assert isinstance(asked, JoinGroupResponse)
        member_id = asked.member_id
        waiting.send(join_request(member_id=member_id), 7)
        while not _has_member(node.services.groups, member_id):
            await leaving.call(join_request(group_id="other"), 7)

        def broken(*_: object) -> Message:
            raise ZeroDivisionError("a fault nobody thought of")

        monkeypatch.setattr(rebalance, "fail_sync", broken)
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the end of a connection is
            await leaving.call(leave, 4)
        _, answer = await waiting.receive(JoinGroupResponse, 7)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        monkeypatch.undo()


def _has_member(groups: Any, member_id: str) -> bool:
    return any(
        member_id in group.members
        for loaded in groups.runtime.shards
        for group in loaded.shard.groups.values()
    )


def test_leaving_with_many_names_takes_one_look_at_each() -> None:
    """Ten times the names take about ten times the steps, not a hundred times."""
    coordinator = Coordinator()
    coordinator.set_topic("t", 1)
    Client("m", ["t"]).beat(coordinator)
    for number in range(30):
        ClassicClient(coordinator, instance_id=f"i{number}").join()
    looks = 0
    group = coordinator.group
    sound = type(group).static_member

    def counted(self: Any, instance_id: str) -> Any:
        nonlocal looks
        looks += 1
        return sound(self, instance_id)

    type(group).static_member = counted  # type: ignore[method-assign]  # put back below
    try:
        result = coordinator.new_result()
        names = [f"i{number % 40}" for number in range(10_000)]
        request = LeaveGroupRequest(
            group_id="group",
            members=[MemberIdentity(member_id="", group_instance_id=name) for name in names],
        )
        coordinator.shard.leave(request, None, result)
        codes = [each.error_code for each in coordinator.keep(result)[-1].members]
    finally:
        type(group).static_member = sound  # type: ignore[method-assign]  # as it was
    assert looks == 0
    assert codes[29:31] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert coordinator.group.members.keys() == {"m"}


def test_a_group_of_many_members_is_looked_at_once_for_many_offsets() -> None:
    coordinator = Coordinator()
    coordinator.set_topic("t", 1)
    for number in range(30):
        Client(f"m{number}", ["t"]).beat(coordinator)
    group = coordinator.group
    looks = 0
    sound = type(group).topics_of

    def counted(self: Any, member: Any) -> Any:
        nonlocal looks
        looks += 1
        return sound(self, member)

    type(group).topics_of = counted  # type: ignore[method-assign]  # put back below
    try:
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [
            OffsetDeleteRequestTopic(name=f"t{number}", partitions=partitions)
            for number in range(1_000)
        ]
        result = coordinator.new_result()
        request = OffsetDeleteRequest(group_id="group", topics=topics)
        offset_requests.delete(coordinator.shard, request, None, result)
        offset_requests.expire_offsets(coordinator.shard, "group", result)
    finally:
        type(group).topics_of = sound  # type: ignore[method-assign]  # as it was
    assert looks == 2 * len(group.members)
