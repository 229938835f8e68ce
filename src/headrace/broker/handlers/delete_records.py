"""DeleteRecords: move the start of a log forward."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.ids import Offset
from headrace.protocol.message import Message
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.replication.flush_wait import wait_until_flushed
from headrace.security.authorizer import AclOperation, ResourceType

UP_TO_HIGH_WATERMARK = -1


def _refuse(request: DeleteRecordsRequest, code: ErrorCode, _: str | None) -> Message:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=-1, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(DeleteRecordsRequest, refuse=_refuse)
async def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete below the offsets given; answer when the new log starts are on disk."""
    permissions = [
        ctx.allows(AclOperation.DELETE, ResourceType.TOPIC, topic.name) for topic in request.topics
    ]
    # Only committed records can be deleted: let what is written become so, but do not keep the disk
    # busy for those who may delete nothing.
    await wait_until_flushed(
        (
            ctx.services.replicas.find(topic.name, wanted.partition_index)
            for topic, allowed in zip(request.topics, permissions, strict=True)
            if allowed
            for wanted in topic.partitions
        ),
        ctx.connection,
    )
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_delete(ctx, topic.name, wanted, allowed) for wanted in topic.partitions],
        )
        for topic, allowed in zip(request.topics, permissions, strict=True)
    ]
    try:
        await ctx.services.replicas.checkpoint_log_starts()
    except StorageError as error:
        # Not to be read any more, but a crash could bring them back: the client shall ask again.
        for response in (each for topic in topics for each in topic.partitions):
            if not response.error_code:
                response.error_code, response.low_watermark = error.code, -1
    return DeleteRecordsResponse(topics=topics)


def _delete(
    ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition, allowed: bool
) -> DeleteRecordsPartitionResult:
    response = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=-1
    )
    try:
        if not allowed:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = ctx.services.replicas.require(topic, wanted.partition_index)
        response.low_watermark = partition.delete_records_before(
            None if wanted.offset == UP_TO_HIGH_WATERMARK else Offset(wanted.offset)
        )
    except HeadraceError as error:
        response.error_code = error.code
    return response
