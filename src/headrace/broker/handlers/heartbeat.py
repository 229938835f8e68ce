"""Heartbeat: keep a member in its group, or tell it why it must join again."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(_: HeartbeatRequest, code: ErrorCode, __: str | None) -> Message:
    return HeartbeatResponse(error_code=code)


@handles(HeartbeatRequest, refuse=_refuse)
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    return ctx.services.groups.heartbeat(request)
