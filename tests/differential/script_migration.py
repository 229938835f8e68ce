"""Groups between the protocols: classic members in consumer groups, upgrades and downgrades."""

from __future__ import annotations

import time
from typing import Any

from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
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
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.schemas.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from headrace.protocol.schemas.coordinator_frame import encode_versioned
from tests.differential.peer import Peer
from tests.differential.script_consumer_groups import wait_for_coordinator
from tests.differential.scripts import script

_TOPIC = "handed-over"
# Kafka computes a new target at most once in this time (group.consumer.assignment.interval.ms).
_ASSIGNMENT_SECONDS = 1.1


def _modern(group: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    joining: dict[str, Any] = {}
    if epoch == 0:
        joining = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [_TOPIC],
            "topic_partitions": [],
        }
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="modern", member_epoch=epoch, **{**joining, **fields}
    )


def _join(group: str, member: str, *owned: int, **fields: Any) -> JoinGroupRequest:
    held = [OwnedPartitions(topic=_TOPIC, partitions=list(owned))] if owned else []
    subscription = ConsumerProtocolSubscription(topics=[_TOPIC], owned_partitions=held)
    offered = JoinGroupRequestProtocol(
        name=fields.pop("protocol", "cooperative-sticky"),
        metadata=encode_versioned(subscription, 1),
    )
    known: dict[str, Any] = {
        "session_timeout_ms": 20_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
    }
    return JoinGroupRequest(
        group_id=group, member_id=member, protocols=[offered], **{**known, **fields}
    )


def _sync(group: str, member: str, generation: int, *shares: int, **fields: Any) -> Message:
    assigned = [AssignedPartitions(topic=_TOPIC, partitions=list(shares))]
    assignment = ConsumerProtocolAssignment(assigned_partitions=assigned)
    given = SyncGroupRequestAssignment(member_id=member, assignment=encode_versioned(assignment, 1))
    known = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        assignments=[given] if shares else [],
        **{**known, **fields},
    )


def _beat(group: str, member: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def _commit(group: str, member: str, generation: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=[partition])],
    )


def _described(peer: Peer, group: str, label: str) -> None:
    for version in (0, 1):
        request = ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        peer.ask(request, version, f"describe: {label}")
    classic = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    peer.ask(classic, 6, f"describe as a classic group: {label}")


def _joined(answer: Message | None) -> tuple[str, int]:
    assert isinstance(answer, JoinGroupResponse)
    return answer.member_id, answer.generation_id


def _owned(answer: Message | None) -> list[OwnedTopicPartitions]:
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.assignment is not None
    return [
        OwnedTopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
        for topic in answer.assignment.topic_partitions
    ]


def _epoch(answer: Message | None) -> int:
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer.member_epoch


@script
def a_classic_member_in_a_consumer_group(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    group = "begun on the new protocol"
    epoch = _epoch(peer.ask(_modern(group, 0), 1, "modern joins"))
    time.sleep(_ASSIGNMENT_SECONDS)
    peer.ask(_join(group, "", protocol_type="connect"), 9, "somebody else's protocol type")
    # Kafka makes ids of another form here than in classic groups, so this one brings its own.
    member, generation = _joined(peer.ask(_join(group, "classic"), 9, "classic joins"))
    peer.ask(_sync(group, member, generation), 5, "classic syncs")
    peer.ask(_beat(group, member, generation), 4, "nothing is free yet")
    told = peer.ask(_modern(group, epoch), 1, "modern learns of it")
    epoch = _epoch(peer.ask(_modern(group, epoch, topic_partitions=_owned(told)), 1, "gives up"))
    peer.ask(_beat(group, member, generation), 4, "something is free")
    member, generation = _joined(peer.ask(_join(group, member), 9, "classic rejoins"))
    peer.ask(_sync(group, member, generation), 5, "classic gets its share")
    peer.ask(_beat(group, member, generation), 4, "all is well")
    _described(peer, group, "both")
    peer.ask(_commit(group, member, generation), 8, "classic commits")
    peer.ask(_commit(group, member, generation + 1), 8, "classic commits from the future")
    peer.ask(_beat(group, member, generation + 1), 4, "classic from the future")
    peer.ask(_sync(group, member, generation + 1), 5, "classic syncs in the future")
    other = {"protocol_name": "range"}
    peer.ask(_sync(group, member, generation, **other), 5, "classic syncs another protocol")
    peer.ask(_join(group, "", protocol="range"), 9, "a protocol that the others lack")
    leaving = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
    peer.ask(leaving, 5, "classic leaves")
    _described(peer, group, "modern alone")


@script
def a_group_upgraded_and_downgraded(peer: Peer) -> None:
    peer.create(_TOPIC, 2)
    wait_for_coordinator(peer)
    group = "begun on the old protocol"
    member, _ = _joined(peer.ask(_join(group, ""), 9, "classic asks for an id"))
    member, generation = _joined(peer.ask(_join(group, member), 9, "classic joins"))
    peer.ask(_sync(group, member, generation, 0, 1), 5, "classic takes everything")
    peer.ask(_modern(group, 5), 1, "an epoch in a classic group")
    _described(peer, group, "classic")
    epoch = _epoch(peer.ask(_modern(group, 0), 1, "modern joins"))
    time.sleep(_ASSIGNMENT_SECONDS)
    _described(peer, group, "upgraded")
    peer.ask(_beat(group, member, generation), 4, "classic must rejoin")
    peer.ask(_sync(group, member, generation), 5, "a sync is too early")
    member, generation = _joined(peer.ask(_join(group, member, 0, 1), 9, "classic rejoins"))
    peer.ask(_sync(group, member, generation), 5, "classic learns what to give up")
    peer.ask(_beat(group, member, generation), 4, "classic must say so")
    member, generation = _joined(peer.ask(_join(group, member, 0), 9, "classic has given it up"))
    peer.ask(_sync(group, member, generation), 5, "classic keeps the rest")
    peer.ask(_beat(group, member, generation), 4, "all is well")
    peer.ask(_modern(group, epoch), 1, "modern takes")
    _described(peer, group, "settled")
    peer.ask(_modern(group, -1), 1, "modern leaves")
    _described(peer, group, "downgraded")
    peer.ask(_beat(group, member, generation), 4, "classic must rejoin again")
    peer.ask(_join(group, member, 0), 9, "classic rejoins, now as the leader")
    peer.ask(_modern(group, -1), 1, "modern leaves a classic group")
