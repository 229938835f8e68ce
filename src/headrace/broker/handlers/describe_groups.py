"""DescribeGroups: state and members of classic groups."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import NOT_ASKED, authorized_operations
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.queries import describe_error
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType


@handles(DescribeGroupsRequest)
def describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> None:
    """Describe each group; one that is refused is a value among the others."""
    allowed = []
    refused = []
    # Once each: what a group's members have sent is much longer than its name.
    for group_id in dict.fromkeys(request.groups):
        if ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            refused.append(describe_error(group_id, ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))

    def reply(groups: list[DescribedGroup]) -> None:
        for group in groups:
            group.authorized_operations = (
                authorized_operations(ctx, ResourceType.GROUP, group.group_id)
                if request.include_authorized_operations and not group.error_code
                else NOT_ASKED
            )
        ctx.reply(DescribeGroupsResponse(groups=refused + groups))

    ctx.services.groups.describe(allowed, ctx.api_version, reply)
