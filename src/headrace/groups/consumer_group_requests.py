"""Steps that concern consumer groups, and groups on their way between the two protocols.

The decisions are made in `consumer/`; here their records are brought into the shard, and a
group that changed its protocol takes the other one's place.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic import rebalance
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import ClassicMember
from headrace.groups.consumer import classic_members, heartbeat, leaving
from headrace.groups.consumer.describe import describe
from headrace.groups.consumer.draft import Decision, GroupContext, everything_visible
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.migration import ClassicGroupState, ClassicMemberState
from headrace.groups.consumer.topics import ImageTopics
from headrace.groups.records import GroupRecord
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.shard_state import ShardState
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import DescribedGroup
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.schemas.consumer_groups import ConsumerGroupMetadataKey

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)


def consumer_heartbeat(
    shard: ShardState,
    request: ConsumerGroupHeartbeatRequest,
    client: ClientInfo,
    reply: Reply,
    result: GroupResult,
    can_describe: Callable[[str], bool] = everything_visible,
) -> None:
    """ConsumerGroupHeartbeat; the first one in a classic group upgrades it."""
    group = shard.groups.get(request.group_id)
    decided = heartbeat.heartbeat(
        group if isinstance(group, ConsumerGroup) else None,
        request,
        group_context(request.group_id, result, can_describe),
        client_id=client.client_id,
        client_host=client.client_host,
        api_version=client.api_version,
        new_member_id=client.new_member_id,
        classic=_state_of(group) if isinstance(group, ClassicGroup) else None,
    )
    _apply_result(shard, request.group_id, decided, result)
    if result.records:
        shard.schedule(request.group_id, result)
    # Otherwise it only moved a deadline, and only away.
    if isinstance(group, ClassicGroup):
        logger.info(
            "group upgraded: group=%s generation=%d members=%d",
            group.group_id,
            group.generation,
            len(group.members),
        )
        _fail_pending_members(group, result)
    result.reply(reply, decided.response)


def join(
    shard: ShardState,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    client: ClientInfo,
    reply: Reply,
    result: GroupResult,
) -> None:
    """JoinGroup of a classic member in a consumer group."""
    decided = classic_members.join(
        group,
        request,
        group_context(group.group_id, result),
        client_id=client.client_id,
        client_host=client.client_host,
        api_version=client.api_version,
        new_member_id=client.new_member_id,
    )
    _apply_result(shard, group.group_id, decided, result, rebalances=False)
    result.reply(reply, decided.response)


def sync(
    shard: ShardState,
    group: ConsumerGroup,
    request: SyncGroupRequest,
    reply: Reply,
    result: GroupResult,
) -> None:
    decided = classic_members.sync(group, request, group_context(group.group_id, result))
    _apply_result(shard, group.group_id, decided, result)
    result.reply(reply, decided.response)


def classic_heartbeat(
    shard: ShardState, group: ConsumerGroup, request: HeartbeatRequest, result: GroupResult
) -> HeartbeatResponse:
    decided = classic_members.heartbeat(group, request, group_context(group.group_id, result))
    _apply_result(shard, group.group_id, decided, result)
    return decided.response


def leave(
    shard: ShardState,
    group: ConsumerGroup,
    request: LeaveGroupRequest,
    reply: Reply,
    result: GroupResult,
) -> None:
    decided = classic_members.leave(group, request, group_context(group.group_id, result))
    _apply_result(shard, group.group_id, decided, result)
    result.reply(reply, decided.response)


def expire(shard: ShardState, group: ConsumerGroup, result: GroupResult) -> None:
    """Remove members whose time is over."""
    decided = leaving.expire(group, group_context(group.group_id, result))
    _apply_result(shard, group.group_id, decided, result)


def describe_group(shard: ShardState, result: GroupResult, group_id: str) -> DescribedGroup:
    """A consumer group for ConsumerGroupDescribe; a classic one is not found there."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group.",
        )
    default_assignor = result.settings.consumer.assignors[0]
    return describe(group, ImageTopics(result.image), default_assignor)


def group_context(
    group_id: str, result: GroupResult, can_describe: Callable[[str], bool] = everything_visible
) -> GroupContext:
    """What the decisions of `consumer/` need to know of the world."""
    return GroupContext(
        topics=ImageTopics(result.image),
        settings=result.settings.consumer.with_configs(result.image.group_configs(group_id)),
        now_ms=result.now_ms,
        time_ms=result.time_ms,
        can_describe=can_describe,
    )


def _apply_result(
    shard: ShardState,
    group_id: str,
    decided: Decision[R] | Decision[None],
    result: GroupResult,
    *,
    rebalances: bool = True,
) -> None:
    """Bring a decision into the shard; one that cannot be written changes nothing."""
    before = shard.groups.get(group_id)
    epoch = before.epoch if isinstance(before, ConsumerGroup) else None
    shard.append(result, *decided.records)
    shard.counts.rebalances += sum(map(_begins_epoch, decided.records))
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        decided.set_unrecorded_state(group)
        if group.epoch != epoch:
            logger.info(
                "group epoch: group=%s epoch=%d members=%d",
                group_id,
                group.epoch,
                len(group.members),
            )
    elif decided.downgraded is not None:
        classic = shard.groups[group_id] = _classic_group(decided.downgraded, result)
        if rebalances:
            rebalance.prepare_rebalance(
                classic, result, "the group went back to the classic protocol"
            )


def _begins_epoch(record: GroupRecord) -> bool:
    return type(record.key) is ConsumerGroupMetadataKey and record.value is not None


def _fail_pending_members(group: ClassicGroup, result: GroupResult) -> None:
    """Whoever waits for a rebalance of the group that was shall join the one that is."""
    for member in group.members.values():
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            response = rebalance.join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            result.reply(reply, response)
        rebalance.fail_sync(member, result, ErrorCode.REBALANCE_IN_PROGRESS)


def _state_of(group: ClassicGroup) -> ClassicGroupState:
    return ClassicGroupState(
        group.group_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        tuple(
            ClassicMemberState(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.protocols,
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


def _classic_group(state: ClassicGroupState, result: GroupResult) -> ClassicGroup:
    """The live group, which knows all protocols of its members; its record keeps only one."""
    group = ClassicGroup(state.group_id, result.time_ms)
    group.state = group.previous_state = State.STABLE
    group.generation = state.generation
    group.protocol = state.protocol_name
    for each in state.members:
        member = ClassicMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            each.protocols,
            each.assignment,
        )
        rebalance.restart_session_timer(member, result)
        group.add(member, state.protocol_type or "")
    group.read_subscriptions()
    return group
