"""OffsetCommit: remember how far a group has read; topics by name, from v10 on by id."""

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
    refused: list[OffsetCommitResponseTopic] = []
    good = []
    for topic in request.topics:
        accepted = _accept(ctx, topic, refused)
        if accepted is not None:
            good.append(accepted)
    if not good:
        return OffsetCommitResponse(topics=refused)
    request.topics = good

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            response = _refuse(request, outcome.code, None)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            response = outcome
        if refused:
            response.topics = _merged(refused, response.topics)
        ctx.reply(response)

    try:
        ctx.services.groups.commit(request, ctx.api_version, reply)
    except ApiError as error:
        reply(error)
    return None


def _accept(
    ctx: RequestContext,
    topic: OffsetCommitRequestTopic,
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitRequestTopic | None:
    """The part of a topic that may be committed, under its name."""
    image = ctx.services.metadata.image
    if ctx.api_version >= TOPIC_IDS_SINCE:
        known = image.topics_by_id.get(topic.topic_id)
        if known is None:
            refused.append(_topic_response(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
            return None
        topic.name = known.name
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
        refused.append(
            _topic_response(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        )
        return None
    found = image.topics.get(topic.name)
    count = 0
    if found is not None:
        count, topic.topic_id = len(found.partitions), found.id
    present: list[OffsetCommitRequestPartition] = []
    missing: list[OffsetCommitRequestPartition] = []
    for each in topic.partitions:
        (present if 0 <= each.partition_index < count else missing).append(each)
    if missing:
        refused.append(_topic_response(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    topic.partitions = present
    return topic if present else None


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


def _merged(
    refused: list[OffsetCommitResponseTopic], done: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Each topic once, with the refused partitions before the others, as Kafka answers."""
    topics = {topic.name: topic for topic in refused}
    merged = list(refused)
    for topic in done:
        before = topics.get(topic.name)
        if before is None:
            merged.append(topic)
        else:
            before.partitions += topic.partitions
    return merged
