"""OffsetForLeaderEpoch: where an epoch ended, so that a client can find where it diverged."""

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import LeaderEpoch
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from headrace.security.authorizer import AclOperation, ResourceType


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer with the largest epoch not above the one asked for, and its end offset."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _partition_response(ctx, topic.topic, wanted) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition_response(
    ctx: RequestContext, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    response = EpochEndOffset(partition=wanted.partition)
    try:
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = ctx.services.replicas.require(topic, wanted.partition)
        response.leader_epoch, response.end_offset = partition.end_offset_for_epoch(
            LeaderEpoch(wanted.leader_epoch), wanted.current_leader_epoch
        )
    except HeadraceError as error:
        response.error_code = error.code
    return response
