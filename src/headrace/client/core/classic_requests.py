"""What a member of a classic group sends."""

from collections.abc import Mapping

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.group_models import GroupIdentity
from headrace.client.core.membership import CoordinatorRequest
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
from headrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
# The broker answers a join when the rebalance is over; this is for the way there and back.
_JOIN_EXTRA_MS = 5_000


def join(settings: ConsumerSettings, member_id: str, metadata: bytes) -> CoordinatorRequest:
    """Enter a new generation, with the same wishes whatever the assignor will be."""
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name in settings.assignors
        ],
        reason="",
    )
    return CoordinatorRequest(
        request, JoinGroupResponse, settings.max_poll_interval_ms + _JOIN_EXTRA_MS
    )


def sync(
    settings: ConsumerSettings,
    member: GroupIdentity,
    assignor: str,
    assignments: Mapping[str, bytes],
) -> CoordinatorRequest:
    """Ask for our share; the leader brings everybody's."""
    request = SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=member.epoch,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=share)
            for each, share in assignments.items()
        ],
    )
    return CoordinatorRequest(request, SyncGroupResponse, settings.max_poll_interval_ms)


def heartbeat(settings: ConsumerSettings, member: GroupIdentity) -> CoordinatorRequest:
    """A sign of life."""
    request = HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=member.epoch,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    return CoordinatorRequest(request, HeartbeatResponse, settings.session_timeout_ms)


def leave(settings: ConsumerSettings, member_id: str, reason: str) -> CoordinatorRequest | None:
    """Give up our place; a static member keeps it for a session, which is what it is for."""
    if not member_id or settings.group_instance_id is not None:
        return None
    request = LeaveGroupRequest(
        group_id=settings.group_id,
        member_id=member_id,
        members=[MemberIdentity(member_id=member_id, reason=reason)],
    )
    return CoordinatorRequest(request, LeaveGroupResponse)
