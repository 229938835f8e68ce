"""DeleteTopics, by name or (v6) by id."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.controller.commands import DeleteTopics, TopicDeletion, TopicToDelete
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID
from headrace.protocol.message import Message
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType

DELETION_DISABLED_SINCE = 3
"""Clients of older versions do not know that code."""


def _refuse(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> Message:
    if message == code.name:
        message = None
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in _requested(request)
        ]
    )


def _requested(request: DeleteTopicsRequest) -> list[TopicToDelete]:
    return [TopicToDelete(name) for name in request.topic_names] + [
        TopicToDelete(topic.name, topic.topic_id) for topic in request.topics
    ]


@handles(DeleteTopicsRequest, refuse=_refuse)
async def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete what may be deleted; the data goes with it."""
    allowed = []
    refused = []
    for topic in _requested(request):
        code = _check(ctx, topic)
        if code:
            refused.append(TopicDeletion(topic.name, topic.topic_id, code))
        else:
            allowed.append(topic)
    results = await _delete(ctx, tuple(allowed))
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error,
                error_message=result.message,
            )
            for result in (*results, *refused)
        ]
    )


async def _delete(
    ctx: RequestContext, topics: tuple[TopicToDelete, ...]
) -> tuple[TopicDeletion, ...]:
    try:
        return await ctx.services.controller.submit(DeleteTopics(topics))
    except ApiError as error:
        is_disabled = error.code is ErrorCode.TOPIC_DELETION_DISABLED
        if is_disabled and ctx.api_version < DELETION_DISABLED_SINCE:
            raise ApiError(ErrorCode.INVALID_REQUEST) from None
        raise


def _check(ctx: RequestContext, topic: TopicToDelete) -> ErrorCode:
    name = topic.name
    if topic.topic_id != NO_TOPIC_ID and name is None:
        known = ctx.services.metadata.image.topics_by_id.get(topic.topic_id)
        if known is None:
            return ErrorCode.NONE  # the controller says that the id is unknown
        name = known.name
    if name is not None and not ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
