"""CreatePartitions: raise the number of partitions of topics that exist."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import CreatePartitions, NewPartitions, PartitionsCreation
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(request: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> Message:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


@handles(CreatePartitionsRequest, refuse=_refuse)
async def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions where the client may alter the topic."""
    allowed = []
    refused = []
    for topic in request.topics:
        if ctx.allows(AclOperation.ALTER, ResourceType.TOPIC, topic.name):
            assignments = topic.assignments
            allowed.append(
                NewPartitions(
                    topic.name,
                    topic.count,
                    None
                    if assignments is None
                    else tuple(tuple(each.broker_ids) for each in assignments),
                )
            )
        else:
            refused.append(PartitionsCreation(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    results = await ctx.services.controller.submit(
        CreatePartitions(tuple(allowed), request.validate_only)
    )
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error, error_message=result.message
            )
            for result in (*results, *refused)
        ]
    )
