"""ConsumerGroupHeartbeat: join, stay, subscribe, take and give partitions, leave.

One heartbeat does up to three things, each only where needed: it brings what is known of the
member up to date, which may move the group epoch; it computes a new target for a new epoch; and
it moves the member one step towards its target.
"""

from dataclasses import replace

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer import patterns
from headrace.groups.consumer import records as written
from headrace.groups.consumer.assignors.model import Partitions, TopicIdPartition
from headrace.groups.consumer.draft import Decision, Draft, GroupContext
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.leaving import leave
from headrace.groups.consumer.members import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from headrace.groups.consumer.migration import ClassicGroupState, upgrade_records
from headrace.groups.consumer.reconcile import reconcile
from headrace.groups.consumer.request_checks import check_request
from headrace.groups.consumer.target import refresh_subscriptions, refresh_target
from headrace.groups.consumer.timers import TimerKind
from headrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def heartbeat(
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    context: GroupContext,
    *,
    client_id: str,
    client_host: str,
    api_version: int,
    new_member_id: str,
    classic: ClassicGroupState | None = None,
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """Decide one heartbeat; `classic` is the classic group of that name, if there is one."""
    check_request(request, api_version, context.settings)
    if request.member_epoch < JOIN_EPOCH:
        if group is None:
            raise _not_found(request.group_id, classic, "Group")
        return leave(group, request, context)
    draft = _draft(group, request, context, classic)
    check_size(draft, request.member_id, request.instance_id)
    member = _member(draft, request, new_member_id)
    before = draft.group.members.get(member.member_id, ConsumerMember(member.member_id))
    _update_member(draft, member, request, client_id, client_host)
    refresh_target(draft)
    owned = owned_partitions(request)
    moved = move_member(draft, member.member_id, owned)
    draft.start_timer(TimerKind.SESSION, moved.member_id, context.settings.session_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=moved.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=_interval_ms(draft),
        assignment=_assignment(moved) if _needs_assignment(request, before, moved) else None,
    )
    return draft.decision(response)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says it owns; None where it says nothing."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def move_member(draft: Draft, member_id: str, owned: Partitions | None) -> ConsumerMember:
    """Bring one member a step closer to its target; also starts or stops its revocation timer."""
    group = draft.group
    member = group.members[member_id]
    moved = reconcile(
        member,
        target_epoch=group.assignment_epoch,
        target=group.target_of(member_id),
        owners=group.owners,
        owned=owned,
    )
    if moved is member:
        return member
    draft.write(written.current_assignment(group.group_id, moved))
    if not moved.uses_classic_protocol:
        if moved.state is MemberState.UNREVOKED_PARTITIONS:
            draft.start_timer(TimerKind.REVOCATION, member_id, moved.rebalance_timeout_ms)
        else:
            draft.stop_timer(TimerKind.REVOCATION, member_id)
    return moved


def _not_found(group_id: str, classic: ClassicGroupState | None, kind: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{kind} {group_id} not found."
        if classic is None
        else f"Group {group_id} is not a consumer group.",
    )


def _draft(
    group: ConsumerGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    context: GroupContext,
    classic: ClassicGroupState | None,
) -> Draft:
    if group is not None:
        return Draft(group, context)
    if request.member_epoch != JOIN_EPOCH:
        raise _not_found(request.group_id, classic, "Consumer group")
    draft = Draft(ConsumerGroup(request.group_id), context)
    if classic is not None:
        draft.write_all(upgrade_records(classic, topics=context.topics, settings=context.settings))
        for member in classic.members:
            draft.start_timer(TimerKind.SESSION, member.member_id, member.session_timeout_ms)
    return draft


def check_size(draft: Draft, member_id: str, instance_id: str | None) -> None:
    """Refuse a newcomer to a full group; a static member that comes back is none."""
    limit = draft.context.settings.max_size
    group = draft.group
    if len(group.members) < limit or member_id in group.members:
        return
    if instance_id is None or group.static_member(instance_id) is None:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def _member(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, new_member_id: str
) -> ConsumerMember:
    """The member that heartbeats; a new one has no place in the group yet."""
    member_id = request.member_id or new_member_id
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        return _static_member(draft, request, member_id, joins)
    if joins:
        member = draft.group.members.get(member_id, ConsumerMember(member_id))
    else:
        member = draft.group.member(member_id)
    _check_epoch(member, request)
    return member


def _static_member(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, joins: bool
) -> ConsumerMember:
    instance_id = request.instance_id
    assert instance_id is not None
    if not joins:
        member = draft.group.static_member_as(instance_id, member_id)
        _check_epoch(member, request)
        return member
    existing = draft.group.static_member(instance_id)
    if existing is None:
        return ConsumerMember(member_id)
    if existing.member_id == member_id and existing.epoch != STATIC_LEAVE_EPOCH:
        # Its join is in the log but the answer was lost. Kafka refuses even that, and clients
        # take the refusal for fatal.
        return existing
    if not existing.uses_classic_protocol and existing.epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {existing.member_id} member.",
        )
    return replace_member(draft, existing, member_id)


def replace_member(draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member is back under another id: hand it everything the old one had."""
    group_id = draft.group.group_id
    target = draft.group.target_of(old.member_id)
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.write(
        *written.member_tombstones(group_id, old.member_id),
        written.member_metadata(group_id, new),
        written.target_assignment(group_id, member_id, target),
        written.current_assignment(group_id, new),
    )
    return new


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Fence a member that knows another epoch; one behind is fine if it may have missed ours."""
    received = request.member_epoch
    # Whoever starts anew says with it that it owns nothing, so there is nothing to fence.
    if received in (member.epoch, JOIN_EPOCH):
        return
    if received < member.epoch and received == member.previous_epoch:
        owned = owned_partitions(request)
        if owned is not None and owned <= member.assigned.keys():
            return
    relation = "greater" if received > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one "
        f"known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _update_member(
    draft: Draft,
    member: ConsumerMember,
    request: ConsumerGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
) -> None:
    """Take over what the request says; a changed subscription moves the group epoch."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    updated = replace(
        member,
        instance_id=_given_or_known(request.instance_id, member.instance_id),
        rack_id=_given_or_known(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        server_assignor=_given_or_known(request.server_assignor, member.server_assignor),
        topic_names=member.topic_names if names is None else frozenset(names),
        # librdkafka sends an empty pattern along with plain names: it means none.
        topic_regex=member.topic_regex if regex is None else (regex or None),
        client_id=client_id,
        client_host=client_host,
        classic=None,
    )
    if updated.topic_regex is not None and updated.topic_regex != member.topic_regex:
        patterns.check(updated.topic_regex)
    is_new = member.member_id not in draft.group.members
    if is_new or updated != member:
        draft.write(written.member_metadata(draft.group.group_id, updated))
    refresh_subscriptions(
        draft,
        bump=is_new
        or updated.topic_names != member.topic_names
        or updated.topic_regex != member.topic_regex,
    )


def _given_or_known(given: str | None, known: str | None) -> str | None:
    return known if given is None else given


def _needs_assignment(
    request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, moved: ConsumerMember
) -> bool:
    """Whether the answer carries the assignment: to whoever starts afresh, and when it changed."""
    is_full = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
    return is_full or before.assigned.keys() != moved.assigned.keys()


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in written.by_topic(member.assigned).items()
        ]
    )


def _interval_ms(draft: Draft) -> int:
    group, context = draft.group, draft.context
    changed_ms = context.now_ms if draft.records else group.changed_ms
    return context.settings.heartbeat_interval(
        len(group.members),
        None if changed_ms is None else context.now_ms - changed_ms,
        group.is_stable,
    )
