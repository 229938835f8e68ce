"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what other APIs say to such groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.differential.peer import Peer
from tests.differential.scripts import script, versions

_TOPIC = "divided"
_GROUP = 32
# Brokers apply a changed config a moment after they have answered.
_CONFIG_SECONDS = 0.2
_NOT_YET = (14, 15, 16)
# Kafka computes a new target at most once in this time (group.consumer.assignment.interval.ms).
_ASSIGNMENT_SECONDS = 1.1


def _beat(group: str, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    joining: dict[str, Any] = {}
    if epoch == 0:
        joining = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [_TOPIC],
            "topic_partitions": [],
        }
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **{**joining, **fields}
    )


def wait_for_coordinator(peer: Peer) -> None:
    """Asking for it creates the topic it works on."""
    deadline = time.monotonic() + 30
    while True:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["nobody"])
        peer.quietly(find, 4, FindCoordinatorResponse)
        answer = peer.quietly(_beat("nobody", "probe", 5), 1, ConsumerGroupHeartbeatResponse)
        if answer.error_code not in _NOT_YET:
            return
        assert time.monotonic() < deadline, "there is no coordinator"
        time.sleep(0.05)


def _refused() -> Iterator[tuple[str, ConsumerGroupHeartbeatRequest, int]]:
    """Label, request and first version of heartbeats that nobody accepts."""
    group = "refused"
    yield "epoch in an unknown group", _beat(group, "m", 5), 0
    yield "leave an unknown group", _beat(group, "m", -1), 0
    yield "unknown assignor", _beat(group, "m", 0, server_assignor="nope"), 0
    yield "no member id", _beat(group, "", 0), 1
    yield "no member id in an epoch", _beat(group, "", 3), 0
    yield "blank member id", _beat(group, " ", -1), 0
    yield "no group id", _beat("", "m", 0), 0
    yield "empty instance id", _beat(group, "m", 0, instance_id=""), 0
    yield "empty rack id", _beat(group, "m", 0, rack_id=""), 0
    yield "epoch below all", _beat(group, "m", -3), 0
    yield "static leave without instance id", _beat(group, "m", -2), 0
    yield "no rebalance timeout", _beat(group, "m", 0, rebalance_timeout_ms=-1), 0
    plain = _beat(group, "m", 0, rebalance_timeout_ms=-1, topic_partitions=None)
    yield "epoch 0 in a plain heartbeat", plain, 0
    yield "no partitions named", _beat(group, "m", 0, topic_partitions=None), 0
    yield "no subscription", _beat(group, "m", 0, subscribed_topic_names=None), 0
    broken = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    yield "broken pattern", _beat(group, "m", 0, **broken), 1


@script
def consumer_group_heartbeats_that_are_refused(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    for version in versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        for label, request, since in _refused():
            if version >= since:
                peer.ask(request, version, label)


def _epoch(answer: Message | None) -> int:
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer.member_epoch


@script
def a_consumer_group_in_every_version(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    for version in versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        group = f"one member, version {version}"
        epoch = _epoch(peer.ask(_beat(group, "m", 0), version, "join"))
        peer.ask(_beat(group, "m", epoch), version, "stay")
        full = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [_TOPIC],
            "topic_partitions": [],
        }
        peer.ask(_beat(group, "m", epoch, **full), version, "say everything again")
        peer.ask(_beat(group, "m", 0), version, "join again")
        peer.ask(_beat(group, "m", epoch + 9), version, "from the future")
        peer.ask(_beat(group, "x", epoch), version, "a stranger")
        peer.ask(_beat(group, "x", epoch, instance_id="i"), version, "a static stranger")
        for each in versions(ApiKey.CONSUMER_GROUP_DESCRIBE):
            for asked in (False, True):
                request = ConsumerGroupDescribeRequest(
                    group_ids=[group, "no-such-group"], include_authorized_operations=asked
                )
                peer.ask(request, each, f"describe, operations {asked}")
            alone = ConsumerGroupDescribeRequest(
                group_ids=[group], include_authorized_operations=False
            )
            peer.ask(alone, each, "describe it alone")
            nothing = ConsumerGroupDescribeRequest(
                group_ids=[], include_authorized_operations=False
            )
            peer.ask(nothing, each, "describe nothing")
        _others(peer, group, epoch)
        peer.ask(_beat(group, "x", -1), version, "a stranger leaves")
        peer.ask(_beat(group, "m", -1), version, "leave")
        peer.ask(
            ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
            1,
            "describe it empty",
        )
        peer.ask(DeleteGroupsRequest(groups_names=[group]), 2, "delete it")
        peer.ask(_beat(group, "m", -1), version, "leave it deleted")


def _others(peer: Peer, group: str, epoch: int) -> None:
    """What APIs of the other protocol, and those about offsets, say to the group."""
    for version in (5, 6):
        classic = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        peer.ask(classic, version, "describe it as a classic group")
    listed = peer.quietly(
        ListGroupsRequest(states_filter=["stable"], types_filter=["consumer"]),
        5,
        ListGroupsResponse,
    )
    mine = [
        f"{each.protocol_type} {each.group_state} {each.group_type}"
        for each in listed.groups
        if each.group_id == group
    ]
    peer.note("listed as", "ListGroups", 5, list(mine), good=True)
    peer.ask(DeleteGroupsRequest(groups_names=[group]), 2, "delete it with a member")
    beat = HeartbeatRequest(group_id=group, generation_id=epoch, member_id="m")
    peer.ask(beat, 4, "a classic heartbeat of the member")
    leaving = LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(member_id="x"),
            MemberIdentity(member_id="", group_instance_id="i"),
        ],
    )
    peer.ask(leaving, 5, "strangers leave in the classic way")
    for label, member, number, version in (
        ("commit", "m", epoch, 9),
        ("commit in a version without epochs", "m", epoch, 8),
        ("commit from the future", "m", epoch + 1, 9),
        ("commit from the past", "m", epoch - 1, 9),
        ("commit of a stranger", "x", epoch, 9),
        ("commit of nobody", "", -1, 9),
    ):
        peer.ask(_commit(group, member, number), version, label)
    for label, reader, number in (
        ("fetch", "m", epoch),
        ("fetch from the future", "m", epoch + 1),
        ("fetch from the past", "m", epoch - 1),
        ("fetch of a stranger", "x", epoch),
        ("fetch of nobody", None, -1),
    ):
        peer.ask(_fetch(group, reader, number), 9, label)


def _commit(group: str, member: str, epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="x"
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=[partition])],
    )


def _fetch(group: str, member: str | None, epoch: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=[0])
    asked = OffsetFetchRequestGroup(
        group_id=group, member_id=member, member_epoch=epoch, topics=[topic]
    )
    return OffsetFetchRequest(groups=[asked], require_stable=False)


@script
def configs_of_groups(peer: Peer) -> None:
    group, session, interval = (
        "configured",
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
    )

    def describe(label: str, name: str = group) -> None:
        one = DescribeConfigsResource(
            resource_type=_GROUP, resource_name=name, configuration_keys=[session, interval]
        )
        request = DescribeConfigsRequest(
            resources=[one], include_synonyms=True, include_documentation=False
        )
        peer.ask(request, 4, label)

    def alter(label: str, key: str, value: str | None, operation: int = 0) -> None:
        change = AlterableConfig(name=key, config_operation=operation, value=value)
        one = AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[one], validate_only=False)
        peer.ask(request, 1, label)
        time.sleep(_CONFIG_SECONDS)

    describe("nothing set")
    describe("no name", "")
    alter("a session", session, "50000")
    describe("a session set")
    for label, key, value in (
        ("too short a session", session, "44999"),
        ("too long a session", session, "60001"),
        ("too short an interval", interval, "4999"),
        ("too long an interval", interval, "15001"),
        ("no number", interval, "soon"),
        ("a negative number", interval, "-1"),
        ("no such key", "nope", "1"),
    ):
        alter(label, key, value)
    alter("append to a number", session, "1", 2)
    peer.ask(ListConfigResourcesRequest(resource_types=[_GROUP]), 1, "listed")
    alter("no session any more", session, None, 1)
    describe("nothing set any more")


@script
def partitions_move_between_members(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    group = "two members"
    first = peer.ask(_beat(group, "a", 0), 1, "first joins")
    time.sleep(_ASSIGNMENT_SECONDS)
    second = peer.ask(_beat(group, "b", 0), 1, "second joins")
    told = peer.ask(_beat(group, "a", _epoch(first)), 1, "first learns of it")
    assert isinstance(told, ConsumerGroupHeartbeatResponse)
    assert told.assignment is not None
    owned = [
        OwnedTopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
        for topic in told.assignment.topic_partitions
    ]
    peer.ask(_beat(group, "b", _epoch(second)), 1, "second must wait")
    gave = peer.ask(
        _beat(group, "a", told.member_epoch, topic_partitions=owned), 1, "first gives up"
    )
    peer.ask(_beat(group, "b", _epoch(second)), 1, "second takes")
    before = told.member_epoch
    peer.ask(_beat(group, "a", before, topic_partitions=owned), 1, "first missed the answer")
    peer.ask(_beat(group, "a", before), 1, "first is behind and names nothing")
    peer.ask(_commit(group, "a", before), 9, "first commits in the epoch before")
    peer.ask(_beat(group, "a", _epoch(gave)), 1, "first stays")
    peer.ask(
        ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
        1,
        "describe both",
    )


@script
def a_static_member_comes_and_goes(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    group, static = "a static member", {"instance_id": "i"}
    epoch = _epoch(peer.ask(_beat(group, "s1", 0, **static), 1, "join"))
    peer.ask(_beat(group, "s1", 0, **static), 1, "join again")
    peer.ask(_beat(group, "s2", 0, **static), 1, "another in its place")
    peer.ask(_beat(group, "s1", -2, **static), 1, "away for a moment")
    peer.ask(_beat(group, "s1", epoch, **static), 1, "a heartbeat while away")
    peer.ask(_beat(group, "s2", 0, **static), 1, "back under another id")
    peer.ask(_beat(group, "s1", epoch, **static), 1, "the old one stays")
    peer.ask(_beat(group, "s1", -1, **static), 1, "the old one leaves")
    peer.ask(_beat(group, "s2", -2, instance_id="j"), 1, "away under a wrong name")
    described = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    peer.ask(described, 1, "describe it")
    peer.ask(_beat(group, "s2", -1, **static), 1, "leave for good")
    answer = peer.ask(described, 1, "describe it empty")
    assert isinstance(answer, ConsumerGroupDescribeResponse)
