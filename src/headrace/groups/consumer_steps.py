"""Steps that concern consumer groups, and groups on their way between the two protocols.

The decisions are made in `consumer/`; here their records are brought into the shard, and a
group that changed its protocol takes the other one's place.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.classic import rebalance
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.classic.member import Member as ClassicMember
from headrace.groups.consumer import classic_members, heartbeat, leaving
from headrace.groups.consumer.describe import describe
from headrace.groups.consumer.draft import Circumstances, Decided, everything_visible
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.migration import ClassicGroupState, ClassicMemberState
from headrace.groups.consumer.topics import ImageTopics
from headrace.groups.records import GroupRecord
from headrace.groups.step import Caller, Step, Token
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_describe import DescribedGroup
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

Group = ClassicGroup | ConsumerGroup


class Shard(Protocol):
    """The shard these steps work on."""

    groups: dict[str, Group]

    def apply(self, record: GroupRecord) -> None: ...


def consumer_heartbeat(
    shard: Shard,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    token: Token,
    step: Step,
    can_describe: Callable[[str], bool] = everything_visible,
) -> None:
    """ConsumerGroupHeartbeat; the first one in a classic group upgrades it."""
    group = shard.groups.get(request.group_id)
    decided = heartbeat.heartbeat(
        group if isinstance(group, ConsumerGroup) else None,
        request,
        around(request.group_id, step, can_describe),
        client_id=caller.client_id,
        client_host=caller.client_host,
        api_version=caller.api_version,
        new_member_id=caller.new_member_id,
        classic=_state_of(group) if isinstance(group, ClassicGroup) else None,
    )
    _carry_over(shard, request.group_id, decided, step)
    if isinstance(group, ClassicGroup):
        logger.info(
            "group upgraded: group=%s generation=%d members=%d",
            group.group_id,
            group.generation,
            len(group.members),
        )
        _call_back(group, step)
    step.answer(token, decided.response)


def join(
    shard: Shard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    caller: Caller,
    token: Token,
    step: Step,
) -> None:
    """JoinGroup of a classic member in a consumer group."""
    decided = classic_members.join(
        group,
        request,
        around(group.group_id, step),
        client_id=caller.client_id,
        client_host=caller.client_host,
        api_version=caller.api_version,
        new_member_id=caller.new_member_id,
    )
    _carry_over(shard, group.group_id, decided, step, rebalances=False)
    step.answer(token, decided.response)


def sync(
    shard: Shard, group: ConsumerGroup, request: SyncGroupRequest, token: Token, step: Step
) -> None:
    decided = classic_members.sync(group, request, around(group.group_id, step))
    _carry_over(shard, group.group_id, decided, step)
    step.answer(token, decided.response)


def classic_heartbeat(
    shard: Shard, group: ConsumerGroup, request: HeartbeatRequest, step: Step
) -> HeartbeatResponse:
    decided = classic_members.heartbeat(group, request, around(group.group_id, step))
    _carry_over(shard, group.group_id, decided, step)
    return decided.response


def leave(
    shard: Shard, group: ConsumerGroup, request: LeaveGroupRequest, token: Token, step: Step
) -> None:
    decided = classic_members.leave(group, request, around(group.group_id, step))
    _carry_over(shard, group.group_id, decided, step)
    step.answer(token, decided.response)


def expire(shard: Shard, group: ConsumerGroup, step: Step) -> None:
    """Remove members whose time is over."""
    decided = leaving.expire(group, around(group.group_id, step))
    _carry_over(shard, group.group_id, decided, step)


def described(shard: Shard, group_id: str, step: Step) -> DescribedGroup:
    """A consumer group for ConsumerGroupDescribe; a classic one is not found there."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group.",
        )
    default_assignor = step.settings.consumer.assignors[0]
    return describe(group, ImageTopics(step.image), default_assignor)


def around(
    group_id: str, step: Step, can_describe: Callable[[str], bool] = everything_visible
) -> Circumstances:
    """What the decisions of `consumer/` need to know of the world."""
    return Circumstances(
        topics=ImageTopics(step.image),
        settings=step.settings.consumer.with_configs(step.image.group_configs(group_id)),
        now_ms=step.now_ms,
        time_ms=step.time_ms,
        can_describe=can_describe,
    )


def _carry_over(
    shard: Shard,
    group_id: str,
    decided: Decided[R] | Decided[None],
    step: Step,
    *,
    rebalances: bool = True,
) -> None:
    """Bring a decision into the shard; one that cannot be written changes nothing."""
    before = shard.groups.get(group_id)
    epoch = before.epoch if isinstance(before, ConsumerGroup) else None
    for record in decided.records:
        step.write_applied(record)
    for record in decided.records:
        shard.apply(record)
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        decided.settle(group)
        if group.epoch != epoch:
            logger.info(
                "group epoch: group=%s epoch=%d members=%d",
                group_id,
                group.epoch,
                len(group.members),
            )
    elif decided.downgraded is not None:
        classic = shard.groups[group_id] = _classic_group(decided.downgraded, step)
        if rebalances:
            rebalance.prepare(classic, step, "the group went back to the classic protocol")


def _call_back(group: ClassicGroup, step: Step) -> None:
    """Whoever waits for a rebalance of the group that was shall join the one that is."""
    for member in group.members.values():
        token, member.joining = member.joining, None
        if token is not None:
            answer = rebalance.join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            step.answer(token, answer)
        rebalance.refuse_sync(member, step, ErrorCode.REBALANCE_IN_PROGRESS)


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


def _classic_group(state: ClassicGroupState, step: Step) -> ClassicGroup:
    """The live group, which knows all protocols of its members; its record keeps only one."""
    group = ClassicGroup(state.group_id, step.time_ms)
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
        rebalance.heard_of(member, step)
        group.add(member, state.protocol_type or "")
    group.read_subscriptions()
    return group
