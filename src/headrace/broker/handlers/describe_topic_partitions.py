"""DescribeTopicPartitions: topic metadata in pages."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.topic_view import (
    NOT_ASKED,
    missing_topic_error,
    offline_replicas,
    topic_operations,
)
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NO_TOPIC_ID
from headrace.metadata.image import Topic
from headrace.metadata.names import INTERNAL_TOPICS
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    NextCursor,
)
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(request: DescribeTopicPartitionsRequest, code: ErrorCode, _: str | None) -> Message:
    return DescribeTopicPartitionsResponse(
        topics=[_unknown(topic.name, code, NOT_ASKED) for topic in request.topics]
    )


@handles(DescribeTopicPartitionsRequest, refuse=_refuse)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in order of name from the cursor on, up to the limit of partitions."""
    names = {topic.name for topic in request.topics} or set(ctx.services.metadata.image.topics)
    cursor = request.cursor
    if cursor is not None:
        foreign = bool(request.topics) and cursor.topic_name not in names
        if cursor.partition_index < 0 or foreign:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        names = {name for name in names if name >= cursor.topic_name}
    limit = ctx.services.config.max_request_partition_size_limit
    left = max(1, min(request.response_partition_limit, limit))
    topics = []
    next_cursor = None
    for name in sorted(names):
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                topics.append(_unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED))
            continue
        topic = ctx.services.metadata.image.topics.get(name)
        if topic is None:
            operations = topic_operations(ctx, name, asked=True)
            topics.append(_unknown(name, missing_topic_error(name), operations))
            continue
        if left <= 0:
            next_cursor = NextCursor(topic_name=name, partition_index=first)
            break
        shown = topic.partitions[first : first + left]
        topics.append(_describe(ctx, topic, first, first + len(shown)))
        left -= len(shown)
        if first + len(shown) < len(topic.partitions):
            next_cursor = NextCursor(topic_name=name, partition_index=first + len(shown))
            break
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _unknown(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=NO_TOPIC_ID,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _describe(
    ctx: RequestContext, topic: Topic, first: int, stop: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                # Lists and not null: Java's admin client reads them unasked.
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=offline_replicas(ctx, topic.name, index),
            )
            for index, partition in enumerate(topic.partitions[first:stop], first)
        ],
        topic_authorized_operations=topic_operations(ctx, topic.name, asked=True),
    )
