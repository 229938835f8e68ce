"""ListOffsets: where a log starts, ends, or passes a point in time.

To search by time is work for the disk, and may be a lot (a batch of millions of records), so a
worker does it.
"""

from collections import Counter
from functools import partial

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import Offset
from headrace.log.partition_log import PartitionLog
from headrace.log.timestamps import TimestampedOffset
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.replication.flush_wait import wait_until_flushed
from headrace.replication.reads import FetchIsolation
from headrace.security.authorizer import AclOperation, ResourceType

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest)
async def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer for each partition; a bad one is a value in the answer."""
    permissions = [
        ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for topic in request.topics
    ]
    await wait_until_flushed(
        (
            ctx.services.replicas.find(topic.name, wanted.partition_index)
            # The disk is not kept busy for those who would be told nothing.
            for topic, allowed in zip(request.topics, permissions, strict=True)
            if allowed
            for wanted in topic.partitions
            if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL)
        ),
        ctx.connection,
    )
    named = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics = []
    for topic, allowed in zip(request.topics, permissions, strict=True):
        responses = []
        for wanted in {each.partition_index: each for each in topic.partitions}.values():
            response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            responses.append(response)
            try:
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if named[topic.name, wanted.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                await _fill_response(ctx, request, topic.name, wanted, response)
            except HeadraceError as error:
                response.error_code = error.code
                if response.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < 5:
                    # An older client knows only this one of those that it shall try again.
                    response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=responses))
    return ListOffsetsResponse(topics=topics)


async def _fill_response(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    response: ListOffsetsPartitionResponse,
) -> None:
    timestamp = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or ctx.api_version < _SINCE.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = ctx.services.replicas.require(topic, wanted.partition_index)
    partition.require_leader(wanted.current_leader_epoch)
    log = partition.log
    isolation = FetchIsolation.of(request.replica_id, request.isolation_level)
    if timestamp == LATEST:
        response.offset = partition.latest_offset(isolation)
        response.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        response.offset = log.log_start_offset
        response.leader_epoch = log.epoch_for_offset(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        end = partition.visible_end(isolation)
        found = await ctx.services.disk_reads.run(partial(_by_time, log, timestamp, end))
        if found is not None:
            response.offset, response.timestamp, response.leader_epoch = found
        else:
            # It may lie in what is not yet known to be committed.
            partition.latest_offset(isolation)
    # Nothing is tiered: the two tiered questions have the answer "none", as set.


def _by_time(log: PartitionLog, timestamp: int, end: Offset) -> TimestampedOffset | None:
    if timestamp == MAX_TIMESTAMP:
        return log.max_timestamp(end)
    return log.find_by_timestamp(timestamp, end)
