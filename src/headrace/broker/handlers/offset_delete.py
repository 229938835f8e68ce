"""OffsetDelete: forget offsets of a group that does not read these topics any more."""

from headrace.broker.group_requests import TopicResponses, split_by_existence
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.security.authorizer import AclOperation, ResourceType


def _refuse(_: OffsetDeleteRequest, code: ErrorCode, __: str | None) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=[])


@handles(OffsetDeleteRequest, refuse=_refuse)
def offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
    """Delete what may be deleted; every other partition is told why not."""
    ctx.require(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    responses: TopicResponses[OffsetDeleteResponseTopic] = TopicResponses()
    good = []
    for topic in request.topics:
        if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            responses.put(topic.name, _topic_response(topic, topic.partitions, code))
            continue
        found = ctx.services.metadata.image.topics.get(topic.name)
        topic.partitions, missing = split_by_existence(found, topic.partitions)
        if missing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.put(topic.name, _topic_response(topic, missing, code))
        if topic.partitions:
            good.append(topic)
    if request.topics and not good:
        return OffsetDeleteResponse(topics=responses.topics)
    request.topics = good

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            ctx.reply(_refuse(request, outcome.code, None))
            return
        assert isinstance(outcome, OffsetDeleteResponse)
        for topic in outcome.topics:
            responses.put(topic.name, topic)
        outcome.topics = responses.topics
        ctx.reply(outcome)

    ctx.services.groups.delete_offsets(request, reply)
    return None


def _topic_response(
    topic: OffsetDeleteRequestTopic,
    partitions: list[OffsetDeleteRequestPartition],
    code: ErrorCode,
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )
