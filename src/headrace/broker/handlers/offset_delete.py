"""OffsetDelete: forget offsets of a group that does not read these topics any more."""

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
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    good = []
    for topic in request.topics:
        if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused[topic.name] = _topic_response(topic, topic.partitions, code)
            continue
        found = ctx.services.metadata.image.topics.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        present: list[OffsetDeleteRequestPartition] = []
        missing: list[OffsetDeleteRequestPartition] = []
        for each in topic.partitions:
            (present if 0 <= each.partition_index < count else missing).append(each)
        if missing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused[topic.name] = _topic_response(topic, missing, code)
        if present:
            topic.partitions = present
            good.append(topic)
    if request.topics and not good:
        return OffsetDeleteResponse(topics=list(refused.values()))
    request.topics = good

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            ctx.reply(_refuse(request, outcome.code, None))
            return
        assert isinstance(outcome, OffsetDeleteResponse)
        for topic in outcome.topics:
            before = refused.setdefault(topic.name, topic)
            if before is not topic:
                before.partitions += topic.partitions
        outcome.topics = list(refused.values())
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
