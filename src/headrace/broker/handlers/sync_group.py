"""SyncGroup: a member's share; answered when the leader has assigned."""

from headrace.broker.group_requests import reply_callback
from headrace.broker.request import RequestContext
from headrace.broker.request_timer import TimedReply
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.security.authorizer import AclOperation, ResourceType

PROTOCOL_REQUIRED_SINCE = 5


def _refuse(_: SyncGroupRequest, code: ErrorCode, __: str | None) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


@handles(SyncGroupRequest, refuse=_refuse)
def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> None:
    """Hand the leader's assignment, or the wait for it, to the group."""
    if ctx.api_version >= PROTOCOL_REQUIRED_SINCE and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    respond = reply_callback(ctx, request, _refuse)
    reply = TimedReply(ctx, respond)
    ctx.services.groups.sync(request, reply)
    reply.pause_timer_unless_decided()
