"""Members of the classic protocol in a consumer group, during a migration.

They send JoinGroup, SyncGroup, Heartbeat and LeaveGroup as ever and never notice: a join is
answered at once with the member's own epoch as generation, nobody is leader, and a sync hands
out what the broker assigned. When something changes they are told REBALANCE_IN_PROGRESS and
join again, naming what they own; that is how they give partitions up.
"""

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.errors import ApiError, ErrorCode, MalformedMessage
from headrace.groups.consumer import records as written
from headrace.groups.consumer.draft import Decision, Draft, GroupContext
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import check_size, move_member, replace_member
from headrace.groups.consumer.leaving import remove_members
from headrace.groups.consumer.members import ClassicProtocols, ConsumerMember, MemberState
from headrace.groups.consumer.migration import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupState,
    downgraded,
    encoded_assignment,
    owned_by,
    subscription_of,
)
from headrace.groups.consumer.target import refresh_subscriptions, refresh_target
from headrace.groups.consumer.timers import TimerKind
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription

MEMBER_ID_REQUIRED_SINCE = 4


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    context: GroupContext,
    *,
    client_id: str,
    client_host: str,
    api_version: int,
    new_member_id: str,
) -> Decision[JoinGroupResponse]:
    """Take a classic member in, or move it on."""
    draft = Draft(group, context)
    member_id = request.member_id or new_member_id
    check_size(draft, member_id, request.group_instance_id)
    classic = ClassicProtocols(
        request.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in request.protocols),
    )
    _check_protocols(group, request, classic, member_id)
    subscription = _subscription(classic)
    needs_id = not request.member_id and request.group_instance_id is None
    if needs_id and api_version >= MEMBER_ID_REQUIRED_SINCE:
        return Decision(
            JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED,
                leader="",
                member_id=member_id,
                members=[],
                protocol_name="" if api_version < _NULLABLE_NAMES_SINCE else None,
            )
        )
    member, replaced = _joining(draft, request, member_id)
    _update(draft, member, request, classic, subscription, client_id, client_host)
    refresh_target(draft)
    moved = move_member(draft, member_id, owned_by(subscription.owned_partitions, context.topics))
    downgraded_group = _downgrade_after(draft, replaced)
    draft.stop_timer(TimerKind.JOIN, member_id)
    draft.start_timer(TimerKind.SESSION, member_id, request.session_timeout_ms)
    draft.start_timer(TimerKind.SYNC, member_id, moved.rebalance_timeout_ms)
    return draft.decision(_joined(moved, classic), downgraded=downgraded_group)


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, context: GroupContext
) -> Decision[SyncGroupResponse]:
    """Hand a classic member its assignment."""
    member, classic = _known(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    _check_sync_protocol(member, classic, request)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise ApiError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group.group_id} and member "
            f"{member.member_id} should rejoin to catch up.",
        )
    draft = Draft(group, context)
    draft.stop_timer(TimerKind.SYNC, member.member_id)
    draft.start_timer(TimerKind.SESSION, member.member_id, classic.session_timeout_ms)
    return draft.decision(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encoded_assignment(member.assigned, classic.protocols, context.topics),
        )
    )


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: GroupContext
) -> Decision[HeartbeatResponse]:
    """Keep a classic member alive; tell it to rejoin when there is something to do."""
    member, classic = _known(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    draft = Draft(group, context)
    refresh_subscriptions(draft, bump=False)
    draft.start_timer(TimerKind.SESSION, member.member_id, classic.session_timeout_ms)
    code = ErrorCode.NONE
    if _must_rejoin(draft.group, member):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        draft.start_timer(
            TimerKind.JOIN, member.member_id, member.rebalance_timeout_ms, unless_running=True
        )
    return draft.decision(HeartbeatResponse(error_code=code))


def leave(
    group: ConsumerGroup, request: LeaveGroupRequest, context: GroupContext
) -> Decision[LeaveGroupResponse]:
    """Remove those members that exist; the others are told why not."""
    identities = request.members or [MemberIdentity(member_id=request.member_id)]
    gone: dict[str, ConsumerMember] = {}
    responses: list[MemberResponse] = []
    # By instance id in one look: a client decides how many it names.
    instances = {each.instance_id: each for each in group.members.values() if each.instance_id}
    for identity in identities:
        response = MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        try:
            member = _leaving(group, identity, instances)
            response.member_id = member.member_id
            gone[member.member_id] = member
        except ApiError as error:
            response.error_code = error.code
        responses.append(response)
    draft = Draft(group, context)
    downgraded_group = remove_members(draft, list(gone.values())) if gone else None
    return draft.decision(LeaveGroupResponse(members=responses), downgraded=downgraded_group)


_NULLABLE_NAMES_SINCE = 7


def _check_protocols(
    group: ConsumerGroup, request: JoinGroupRequest, classic: ClassicProtocols, member_id: str
) -> None:
    others = [member.classic.names for member in group.members.values() if member.classic]
    common = classic.names.intersection(*others)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )


def _subscription(classic: ClassicProtocols) -> ConsumerProtocolSubscription:
    try:
        return subscription_of(classic.protocols)
    except MalformedMessage:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The subscription of the member is malformed."
        ) from None


def _joining(
    draft: Draft, request: JoinGroupRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member that joins, and the static one it takes the place of, if there is one."""
    group = draft.group
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id)), None
    if request.member_id:
        return group.static_member_as(instance_id, member_id), None
    existing = group.static_member(instance_id)
    if existing is None:
        return ConsumerMember(member_id), None
    return replace_member(draft, existing, member_id), existing


def _update(
    draft: Draft,
    member: ConsumerMember,
    request: JoinGroupRequest,
    classic: ClassicProtocols,
    subscription: ConsumerProtocolSubscription,
    client_id: str,
    client_host: str,
) -> None:
    updated = replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        # Before version 1 there was only one timeout.
        rebalance_timeout_ms=request.session_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex=None,
        server_assignor=None,
        client_id=client_id,
        client_host=client_host,
        classic=classic,
    )
    is_new = member.member_id not in draft.group.members
    if is_new or updated != member:
        draft.write(written.member_metadata(draft.group.group_id, updated))
    refresh_subscriptions(
        draft,
        bump=is_new
        or updated.topic_names != member.topic_names
        or updated.topic_regex != member.topic_regex,
    )


def _downgrade_after(draft: Draft, replaced: ConsumerMember | None) -> ClassicGroupState | None:
    """A static member may have taken the place of the last one of the consumer protocol."""
    members = draft.group.members.values()
    settings = draft.context.settings
    if (
        replaced is None
        or replaced.uses_classic_protocol
        or not all(member.uses_classic_protocol for member in members)
        or not settings.migration_policy.may_downgrade
        or len(members) > settings.classic_max_size
    ):
        return None
    records, state = downgraded(
        draft.group, members, topics=draft.context.topics, time_ms=draft.context.time_ms
    )
    draft.write_all(records)
    return state


def _joined(member: ConsumerMember, classic: ClassicProtocols) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=classic.protocols[0][0],
        leader="",
        member_id=member.member_id,
        members=[],
    )


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicProtocols]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.static_member_as(instance_id, member_id)
    if member.classic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    return member, member.classic


def _leaving(
    group: ConsumerGroup, identity: MemberIdentity, instances: Mapping[str, ConsumerMember]
) -> ConsumerMember:
    """Who leaves, of either protocol: an administrator sends this too, by instance id alone."""
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    member = instances.get(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if identity.member_id not in ("", member.member_id):
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    return member


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch "
            f"{member.epoch} of member {member.member_id}.",
        )


def _check_sync_protocol(
    member: ConsumerMember, classic: ClassicProtocols, request: SyncGroupRequest
) -> None:
    name = classic.protocols[0][0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol type {request.protocol_type} from member {member.member_id} request "
            f"is not equal to the group protocol type {CONSUMER_PROTOCOL_TYPE}.",
        )
    if request.protocol_name not in (None, name):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {request.protocol_name} from member {member.member_id} request "
            f"is not equal to the protocol name {name} returned in the join response.",
        )


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Behind the group, with something to give up, or with something free to take."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        partition in group.owners
        for partition in group.target_of(member.member_id)
        if partition not in member.assigned
    )
