"""JoinGroup: enter a classic group; answered when the rebalance is through."""

from headrace.broker.group_requests import client_info
from headrace.broker.request import RequestContext
from headrace.broker.request_timer import TimedReply
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.security.authorizer import AclOperation, ResourceType

NULL_PROTOCOL_SINCE = 7


@handles(JoinGroupRequest)
def join_group(ctx: RequestContext, request: JoinGroupRequest) -> None:
    """Hand the member to its group."""
    if ctx.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def respond(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            response = _refused(request, outcome.code)
        else:
            assert isinstance(outcome, JoinGroupResponse)
            response = outcome
        if ctx.api_version < NULL_PROTOCOL_SINCE and response.protocol_name is None:
            response.protocol_name = ""
        ctx.reply(response)

    reply = TimedReply(ctx, respond)
    try:
        ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        ctx.services.groups.join(request, client_info(ctx, request.group_instance_id), reply)
    except ApiError as error:
        reply(error)
    reply.pause_timer_unless_decided()


def _refused(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, leader="", member_id=request.member_id, members=[])
