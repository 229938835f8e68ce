"""Produce: append batches, and answer as `acks` asks.

The append itself happens before this handler returns, in arrival order. With acks=all the
answer waits until every batch is below its partition's high watermark.
"""

import asyncio
from typing import cast

from headrace.broker.context import RequestContext
from headrace.broker.routes import handles
from headrace.controller.names import COORDINATOR_TOPICS
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, InvalidRecord
from headrace.core.files import Buffer
from headrace.core.ids import Offset
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.protocol.records.validate import NotOneBatch
from headrace.replication.partition import Partition
from headrace.replication.produce import append_produced
from headrace.security.authorizer import Operation, ResourceType

ACKS_ALL = -1
_NOTHING = memoryview(b"")

# Errors that Kafka finds before it looks at the log, or in the log's own state; with all others
# the answer says where the log starts, so that the producer can tell an expired sequence.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
TOPIC_IDS_SINCE = 13
# Kafka lets tools of this client id, and nobody else, write to the topics of coordinators.
ADMIN_CLIENT_ID = "__admin_client"


@handles(ProduceRequest)
def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append every batch that is good, and say of each bad one why it is not."""
    waiting: WaitingProduce | None = None
    failed = False
    topics = []
    for topic in request.topic_data:
        refused, name = _resolve(ctx, request, topic)
        answers = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(
                index=data.index, error_code=refused, base_offset=-1, log_start_offset=-1
            )
            answers.append(answer)
            if refused:
                failed = True
                continue
            try:
                partition = ctx.services.replicas.require(name, data.index)
            except ApiError as error:
                answer.error_code = error.code
                failed = True
                continue
            end = _append(ctx, request, partition, data.records, answer)
            if end is None:
                failed = True
            elif request.acks == ACKS_ALL and partition.high_watermark < end:
                if waiting is None:
                    waiting = WaitingProduce(ctx)
                waiting.wait_for(partition, end, answer)
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        if failed:
            # The only way to tell a producer that wants no answers.
            ctx.connection.close()
        ctx.reply(None)
        return None
    response = ProduceResponse(responses=topics)
    if waiting is None:
        return response
    waiting.start(response, request.timeout_ms / 1000)
    return None


def _resolve(
    ctx: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> tuple[ErrorCode, str]:
    """The topic's name, or why none of its partitions may be written."""
    name = topic.name
    if ctx.api_version >= TOPIC_IDS_SINCE:
        known = ctx.services.controller.image.topics_by_id.get(topic.topic_id)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, ""
        name = known.name
    if not ctx.allows(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
    if request.acks not in (0, 1, ACKS_ALL):
        return ErrorCode.INVALID_REQUIRED_ACKS, name
    if name in COORDINATOR_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, name
    return ErrorCode.NONE, name


def _append(
    ctx: RequestContext,
    request: ProduceRequest,
    partition: Partition,
    records: Buffer | None,
    answer: PartitionProduceResponse,
) -> Offset | None:
    """Append and fill the answer; the offset to wait for, or None if nothing was appended."""
    try:
        info = append_produced(
            partition,
            cast(memoryview, records or _NOTHING),
            acks=request.acks,
            now_ms=ctx.services.clock.now_ms(),
            produce_version=ctx.api_version,
        )
    except HeadraceError as error:
        explain(error, partition, answer)
        return None
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.append_time_ms
    answer.log_start_offset = info.log_start_offset
    return Offset(info.last_offset + 1)


def explain(error: HeadraceError, partition: Partition, answer: PartitionProduceResponse) -> None:
    """Say in the answer why nothing was appended."""
    answer.error_code = error.code
    answer.error_message = str(error) or None
    if error.code not in _WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecord):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


class WaitingProduce:
    """A produce with acks=all whose batches are written but not yet committed."""

    __slots__ = ("_ctx", "_missing", "_response", "_timer")

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._missing = 0
        self._response: ProduceResponse | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, partition: Partition, end: Offset, answer: PartitionProduceResponse) -> None:
        self._missing += 1
        # Until committed the answer says what a timeout would have to say.
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT

        def committed(outcome: ErrorCode) -> None:
            answer.error_code = outcome
            if outcome:
                answer.base_offset = -1
            self._missing -= 1
            if not self._missing:
                self._finish()

        partition.when_committed(end, committed)

    def start(self, response: ProduceResponse, timeout_seconds: float) -> None:
        self._response = response
        if not self._missing:
            self._finish()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_seconds, self._finish)

    def _finish(self) -> None:
        response, self._response = self._response, None
        if response is None:
            return  # not started yet, or answered by the timer
        if self._timer is not None:
            self._timer.cancel()
        self._ctx.reply(response)
