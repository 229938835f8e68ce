"""ConsumerGroupDescribe: state and members of consumer groups."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import NOT_ASKED, authorized_operations
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.describe import describe_error
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headrace.security.authorizer import AclOperation, ResourceType


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(ctx: RequestContext, request: ConsumerGroupDescribeRequest) -> None:
    """Describe each group; one that is refused is a value among the others."""
    allowed = []
    refused = []
    # Once each: what is said of a group is much longer than its name.
    for group_id in dict.fromkeys(request.group_ids):
        if ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            error = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            refused.append(describe_error(group_id, error))

    def reply(groups: list[DescribedGroup]) -> None:
        shown = [_shown(ctx, group) for group in groups]
        for group in shown:
            group.authorized_operations = (
                authorized_operations(ctx, ResourceType.GROUP, group.group_id)
                if request.include_authorized_operations and not group.error_code
                else NOT_ASKED
            )
        ctx.reply(ConsumerGroupDescribeResponse(groups=refused + shown))

    ctx.services.groups.describe_consumer_groups(allowed, reply)


def _shown(ctx: RequestContext, group: DescribedGroup) -> DescribedGroup:
    """The group, unless its assignments name a topic that the client may not know of."""
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
        return group
    return describe_error(
        group.group_id,
        ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The described group uses topics that the client is not authorized to describe.",
        ),
    )
