"""JoinGroup: enter a classic group; answered when the rebalance is through."""

from headrace.broker.context import RequestContext
from headrace.broker.group_requests import answering, caller
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.security.authorizer import Operation, ResourceType

NULL_PROTOCOL_SINCE = 7


def _refuse(request: JoinGroupRequest, code: ErrorCode, _: str | None) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name="",
        leader="",
        member_id=request.member_id,
        members=[],
    )


@handles(JoinGroupRequest, refuse=_refuse)
def join_group(ctx: RequestContext, request: JoinGroupRequest) -> None:
    """Hand the member to its group."""
    ctx.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if ctx.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    reply = answering(ctx, request, _refuse)

    def answer(outcome: Message | ApiError) -> None:
        ctx.resume()
        if isinstance(outcome, JoinGroupResponse) and outcome.protocol_name is None:
            outcome.protocol_name = None if ctx.api_version >= NULL_PROTOCOL_SINCE else ""
        reply(outcome)

    ctx.park()
    ctx.services.groups.join(request, caller(ctx, request.group_instance_id), answer)
