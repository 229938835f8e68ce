"""LeaveGroup: one member up to v2, several from v3 on."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType

SEVERAL_SINCE = 3


def _refuse(_: LeaveGroupRequest, code: ErrorCode, __: str | None) -> Message:
    return LeaveGroupResponse(error_code=code)


@handles(LeaveGroupRequest, refuse=_refuse)
def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> None:
    """Let the members go; the others hear of it with their next heartbeat."""
    ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    if ctx.api_version < SEVERAL_SINCE:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            response = _refused(request, outcome)
        else:
            assert isinstance(outcome, LeaveGroupResponse)
            response = outcome
        if ctx.api_version < SEVERAL_SINCE and response.members:
            response.error_code = response.members[0].error_code
        ctx.reply(response)

    try:
        ctx.services.groups.leave(request, reply)
    except ApiError as error:
        reply(error)


def _refused(request: LeaveGroupRequest, error: ApiError) -> LeaveGroupResponse:
    if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error.code)
    # There is no such group, so there are no such members.
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=error.code,
            )
            for each in request.members
        ]
    )
