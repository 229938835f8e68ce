"""ListOffsets: where a log starts, ends, or passes a point in time.

What is known is answered at once. Records are looked for by their time one partition after the
other, with turns for others between them, and long batches are looked through by a worker.
"""

from collections import Counter
from typing import NamedTuple

from headrace.broker.context import RequestContext
from headrace.broker.routes import handles
from headrace.broker.turns import go_on_later, in_turns
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.ids import Offset
from headrace.log.timestamps import LongBatch, TimestampedOffset
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.replication.partition import Partition
from headrace.replication.settling import unsettled, when_settled
from headrace.security.authorizer import Operation, ResourceType

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest)
def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> None:
    """Answer for each partition; a bad one is a value in the answer."""
    waiting = unsettled(
        ctx.services.replicas.find(topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
        if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL)
    )
    if waiting:
        when_settled(waiting, lambda: _begin(ctx, request), ctx.connection)
    else:
        _begin(ctx, request)
    return


class _Search(NamedTuple):
    """A record to be found by its time, and the answer to be filled in."""

    partition: Partition
    timestamp: int
    end: Offset
    answer: ListOffsetsPartitionResponse


def _begin(ctx: RequestContext, request: ListOffsetsRequest) -> None:
    searches: list[_Search] = []
    response = _answer_all(ctx, request, searches)
    if searches:
        go_on_later(ctx.connection, _search_all(ctx, response, searches))
    else:
        ctx.reply(response)


def _answer_all(
    ctx: RequestContext, request: ListOffsetsRequest, searches: list[_Search]
) -> ListOffsetsResponse:
    named = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics = []
    for topic in request.topics:
        allowed = ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        for wanted in {each.partition_index: each for each in topic.partitions}.values():
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            answers.append(answer)
            try:
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if named[topic.name, wanted.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                _answer(ctx, request, topic.name, wanted, answer, searches)
            except HeadraceError as error:
                answer.error_code = error.code
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _answer(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    searches: list[_Search],
) -> None:
    timestamp = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or ctx.api_version < _SINCE.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    partition = ctx.services.replicas.require(topic, wanted.partition_index)
    partition.check_epoch(wanted.current_leader_epoch)
    log = partition.log
    end = (
        partition.last_stable_offset
        if request.isolation_level == READ_COMMITTED
        else partition.high_watermark
    )
    if timestamp == LATEST:
        answer.offset = end
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.epoch_for_offset(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        searches.append(_Search(partition, timestamp, end, answer))
    # Nothing is tiered: the two tiered questions have the answer "none", as set.


async def _search_all(
    ctx: RequestContext, response: ListOffsetsResponse, searches: list[_Search]
) -> None:
    async for search in in_turns(searches, ctx.services.meters.now):
        answer = search.answer
        try:
            found = await _search(ctx, search)
        except HeadraceError as error:
            answer.error_code = error.code
        else:
            if found is not None:
                answer.offset, answer.timestamp, answer.leader_epoch = found
    ctx.reply(response)


async def _search(ctx: RequestContext, search: _Search) -> TimestampedOffset | None:
    partition, timestamp, end, _ = search
    work = ctx.services.record_work
    start: Offset | None = Offset(0)
    while start is not None:
        if partition.retired:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = partition.log
        try:
            if timestamp == MAX_TIMESTAMP:
                return log.max_timestamp(end, work)
            return log.find_by_timestamp(timestamp, end, work, start)
        except LongBatch as batch:
            try:
                found = await work.in_worker(batch.look)
            except OSError as error:
                raise StorageError(f"cannot search {log.directory}: {error}") from error
            if found is not None:
                inside = log.log_start_offset <= found.offset < end
                return found if inside else None
            start = batch.next_offset
    return None
