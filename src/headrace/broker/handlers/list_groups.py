"""ListGroups: the groups of this broker, by state (v4) and type (v5)."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


def _refuse(_: ListGroupsRequest, code: ErrorCode, __: str | None) -> Message:
    return ListGroupsResponse(error_code=code, groups=[])


@handles(ListGroupsRequest, refuse=_refuse)
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> None:
    """All groups for whoever may see the cluster, otherwise those the client may see."""
    sees_all = ctx.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def reply(response: ListGroupsResponse) -> None:
        if not sees_all:
            response.groups = [
                group
                for group in response.groups
                if ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
            ]
        ctx.reply(response)

    ctx.services.groups.list_groups(request, reply)
