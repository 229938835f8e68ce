"""Metadata: brokers, topics and leaders; may create a topic on first mention."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import (
    cluster_operations,
    may_create_topic,
    missing_topic_error,
    offline_replicas,
    reachable_brokers,
    topic_operations,
)
from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID
from headrace.metadata.image import Topic
from headrace.metadata.names import INTERNAL_TOPICS
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.security.authorizer import AclOperation, ResourceType

# Versions 10 and 11 have the field for an id, but only version 12 may use it.
BY_ID_SINCE = 12


@handles(MetadataRequest)
def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answer for the topics asked for, or for all of them."""
    asked = request.topics or []
    if ctx.api_version < BY_ID_SINCE and any(topic.topic_id != NO_TOPIC_ID for topic in asked):
        return _refuse_ids(asked)
    image = ctx.services.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in reachable_brokers(ctx)
        ],
        cluster_id=image.cluster_id,
        controller_id=ctx.services.node_id,
        topics=_topics(ctx, request),
        cluster_authorized_operations=cluster_operations(
            ctx, request.include_cluster_authorized_operations
        ),
    )


def _topics(ctx: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    asked = request.topics
    if asked is None or (ctx.api_version == 0 and not asked):
        image = ctx.services.metadata.image
        return [
            _describe(ctx, request, topic)
            for topic in image.topics.values()
            if ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    creatable: list[str] = []
    once = {(topic.topic_id, topic.name): topic for topic in asked}
    responses = [_one(ctx, request, topic, creatable) for topic in once.values()]
    if creatable:
        ctx.services.auto_topic_creation.create(creatable)
    return responses


def _one(
    ctx: RequestContext,
    request: MetadataRequest,
    asked: MetadataRequestTopic,
    creatable: list[str],
) -> MetadataResponseTopic:
    image = ctx.services.metadata.image
    if asked.topic_id != NO_TOPIC_ID:
        by_id = image.topics_by_id.get(asked.topic_id)
        if by_id is None or not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, by_id.name):
            return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, asked)
        return _describe(ctx, request, by_id)
    name = asked.name or ""
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
    topic = image.topics.get(name)
    if topic is not None:
        return _describe(ctx, request, topic)
    code = missing_topic_error(name)
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return _refused(name, code, asked)
    wanted = ctx.api_version < 4 or request.allow_auto_topic_creation
    if wanted and ctx.services.config.auto_create_topics_enable:
        if not may_create_topic(ctx, name):
            return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
        creatable.append(name)
    return _refused(name, code, asked)


def _refuse_ids(asked: list[MetadataRequestTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in asked
        ],
    )


def _refused(
    name: str | None, code: ErrorCode, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=asked.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _describe(ctx: RequestContext, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline_replicas(ctx, topic.name, index),
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=topic_operations(
            ctx, topic.name, request.include_topic_authorized_operations
        ),
    )
