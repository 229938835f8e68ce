"""OffsetCommit: remember how far a group has read; topics by name, from v10 on by id."""

from headrace.broker.group_requests import TopicResponses, split_by_existence
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.security.authorizer import AclOperation, ResourceType

TOPIC_IDS_SINCE = 10


def _refuse(request: OffsetCommitRequest, code: ErrorCode, _: str | None) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[_topic_response(topic, topic.partitions, code) for topic in request.topics]
    )


@handles(OffsetCommitRequest, refuse=_refuse)
def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    """Commit what may be committed; every other partition is told why not."""
    ctx.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
    responses: TopicResponses[OffsetCommitResponseTopic] = TopicResponses()
    good = [topic for topic in request.topics if _accept(ctx, topic, responses)]
    if not good:
        return OffsetCommitResponse(topics=responses.topics)
    request.topics = good

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            response = _refuse(request, outcome.code, None)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            response = outcome
        if responses.topics:
            for topic in response.topics:
                _put(responses, topic)
            response.topics = responses.topics
        ctx.reply(response)

    try:
        ctx.services.groups.commit(request, ctx.api_version, reply)
    except ApiError as error:
        reply(error)
    return None


def _accept(
    ctx: RequestContext,
    topic: OffsetCommitRequestTopic,
    responses: TopicResponses[OffsetCommitResponseTopic],
) -> bool:
    """Leave what may be committed of a topic, under its name and id; whether there is anything."""
    image = ctx.services.metadata.image
    if ctx.api_version >= TOPIC_IDS_SINCE:
        known = image.topics_by_id.get(topic.topic_id)
        if known is None:
            _put(responses, _topic_response(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
            return False
        topic.name = known.name
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        _put(responses, _topic_response(topic, topic.partitions, code))
        return False
    found = image.topics.get(topic.name)
    if found is not None:
        topic.topic_id = found.id
    topic.partitions, missing = split_by_existence(found, topic.partitions)
    if missing:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        _put(responses, _topic_response(topic, missing, code))
    return bool(topic.partitions)


def _put(
    responses: TopicResponses[OffsetCommitResponseTopic], topic: OffsetCommitResponseTopic
) -> None:
    """By both, since a topic whose id is not known has no name."""
    responses.put((topic.name, topic.topic_id), topic)


def _topic_response(
    topic: OffsetCommitRequestTopic,
    partitions: list[OffsetCommitRequestPartition],
    code: ErrorCode,
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )
