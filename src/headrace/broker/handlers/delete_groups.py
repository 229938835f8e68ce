"""DeleteGroups: remove empty groups with their offsets."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ErrorCode
from headrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType


@handles(DeleteGroupsRequest)
def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> None:
    """Delete each group; one that is refused is a value among the others."""
    allowed = []
    refused = []
    for group_id in dict.fromkeys(request.groups_names):
        if ctx.allows(AclOperation.DELETE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(DeletableGroupResult(group_id=group_id, error_code=code))
    request.groups_names = allowed

    def reply(response: DeleteGroupsResponse) -> None:
        response.results = refused + response.results
        ctx.reply(response)

    ctx.services.groups.delete_groups(request, reply)
