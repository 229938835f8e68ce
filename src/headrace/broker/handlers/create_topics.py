"""CreateTopics: shape the request for the controller, and its decisions for the client."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.time_slice import in_time_slices
from headrace.broker.topic_view import may_create_topic
from headrace.controller.commands import CreateTopics, TopicCreation, TopicToCreate
from headrace.core import topic_configs
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> Message:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=code, error_message=message, configs=[]
            )
            for topic in request.topics
        ]
    )


@handles(CreateTopicsRequest, refuse=_refuse)
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create what may be created; each topic has its own answer."""
    wanted = []
    refused = []
    for topic in request.topics:
        if may_create_topic(ctx, topic.name):
            wanted.append(topic)
        else:
            refused.append(TopicCreation(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    results = await ctx.services.controller.submit(
        CreateTopics(tuple(_command(topic) for topic in wanted), request.validate_only)
    )
    return CreateTopicsResponse(
        topics=[
            _shape(ctx, result)
            async for result in in_time_slices((*results, *refused), ctx.services.time_slice)
        ]
    )


def _command(topic: CreatableTopic) -> TopicToCreate:
    return TopicToCreate(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


def _shape(ctx: RequestContext, result: TopicCreation) -> CreatableTopicResult:
    response = CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error,
        error_message=result.message,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        # Never null without an error: Java's admin client reads it unasked.
        configs=[],
    )
    if result.error:
        return response
    if not ctx.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
        response.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.num_partitions = response.replication_factor = -1
        response.configs = None
        return response
    response.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in topic_configs.describe(result.configs, ctx.services.config)
    ]
    return response
