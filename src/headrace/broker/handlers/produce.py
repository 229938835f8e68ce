"""Produce: append batches, and answer as `acks` asks.

The append itself happens before this handler returns, in arrival order, unless it takes so long
that others have to have their turn. With acks=all the answer waits until every batch is below its
partition's high watermark.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final, cast
from uuid import UUID

from headrace.broker.request import RequestContext, RequestOrigin
from headrace.broker.routes import handles
from headrace.broker.services import Services
from headrace.broker.time_slice import in_time_slices
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, InvalidRecord
from headrace.core.ids import Offset
from headrace.log.partition_log import AppendInfo
from headrace.metadata.names import COORDINATOR_TOPICS
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.records.budget import OverBudget
from headrace.protocol.records.validate import NotOneBatch
from headrace.replication.partition import Partition
from headrace.replication.produce import append_produced, check_produced, duplicate_or_raise
from headrace.security.authorizer import AclOperation, Action, ResourceType

ACKS_ALL: Final = -1
ACKS: Final = frozenset({0, 1, ACKS_ALL})
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
    work = _BatchAppender(ctx, request)
    response = ProduceResponse(responses=[])
    steps = _append_each(ctx, request, work, response)
    if ctx.is_long:
        ctx.finish_in_task(_append_in_time_slices(ctx, work, steps, response))
        return None
    for _ in steps:
        pass
    if work.deferred:
        ctx.finish_in_task(work.append_deferred(response))
        return None
    topics = response.responses
    if len(topics) == 1 and len(topics[0].partition_responses) == 1 and not work.failed:
        ctx.appended_to = work.appended_to
    return work.finish(response)


async def _append_in_time_slices(
    ctx: RequestContext, work: "_BatchAppender", steps: Iterator[None], response: ProduceResponse
) -> None:
    async for _ in in_time_slices(steps, ctx.services.time_slice):
        pass
    await work.append_deferred(response)


def _append_each(
    ctx: RequestContext, request: ProduceRequest, work: "_BatchAppender", response: ProduceResponse
) -> Iterator[None]:
    """One partition after the other, with its answer."""
    for topic in request.topic_data:
        refused, name = admit_topic(
            ctx.services,
            ctx.origin,
            ctx.client_id,
            ctx.api_version,
            request.acks,
            topic.name,
            topic.topic_id,
        )
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
        for data in topic.partition_data:
            yield
            answer = PartitionProduceResponse(
                index=data.index, error_code=refused, base_offset=-1, log_start_offset=-1
            )
            answers.append(answer)
            if refused:
                work.failed = True
                continue
            try:
                partition = ctx.services.replicas.require(name, data.index)
            except ApiError as error:
                answer.error_code = error.code
                work.failed = True
                continue
            work.append(partition, cast(memoryview, data.records or _NOTHING), answer)


def admit_topic(
    services: Services,
    origin: RequestOrigin,
    client_id: str | None,
    version: int,
    acks: int,
    name: str,
    topic_id: UUID,
) -> tuple[ErrorCode, str]:
    """The topic's name, or why none of its partitions may be written now by this caller."""
    if version >= TOPIC_IDS_SINCE:
        known = services.metadata.image.topics_by_id.get(topic_id)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, ""
        name = known.name
    action = Action(
        origin.principal, origin.client_host, AclOperation.WRITE, ResourceType.TOPIC, name
    )
    if not services.authorizer.allows(action):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
    if acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, name
    if name in COORDINATOR_TOPICS and client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, name
    return ErrorCode.NONE, name


def admit(
    services: Services,
    origin: RequestOrigin,
    client_id: str | None,
    version: int,
    acks: int,
    name: str,
    topic_id: UUID,
    index: int,
) -> Partition | None:
    """The partition that may be written; None if the answer must say why none may."""
    refused, name = admit_topic(services, origin, client_id, version, acks, name, topic_id)
    return None if refused else services.replicas.find(name, index)


class _BatchAppender:
    """The batches of one request: appended at once, or when others have had their turn.

    Once a batch has to wait, for the worker or for its turn, those behind it wait as well, and so
    do the requests of this connection: a producer's batches are appended in the order in which
    they were sent.
    """

    __slots__ = (
        "_ctx",
        "_delayed",
        "_has_appended",
        "_request",
        "appended_to",
        "deferred",
        "failed",
    )

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._delayed: DelayedProduce | None = None
        self._has_appended = False
        self.failed = False
        self.appended_to: Partition | None = None
        self.deferred: list[tuple[Partition, memoryview, PartitionProduceResponse]] = []

    def append(
        self, partition: Partition, records: memoryview, answer: PartitionProduceResponse
    ) -> None:
        # The first is never put off, or a busy machine would put off every request.
        turn_is_over = self._has_appended and self._ctx.services.time_slice.is_over()
        self._has_appended = True
        if self.deferred or turn_is_over or not self._append_now(partition, records, answer):
            # A copy: the buffer of the connection is used again as soon as this call is over.
            self.deferred.append((partition, memoryview(bytearray(records)), answer))

    def _append_now(
        self, partition: Partition, records: memoryview, answer: PartitionProduceResponse
    ) -> bool:
        """Whether it was appended or refused; if not, it has to wait and nothing was done."""
        ctx = self._ctx
        try:
            info = append_produced(
                partition,
                records,
                acks=self._request.acks,
                now_ms=ctx.services.clock.now_ms(),
                produce_version=ctx.api_version,
                budget=ctx.services.record_work,
            )
        except HeadraceError as error:
            self._refused(error, partition, answer)
        except OverBudget:
            return False
        else:
            self._appended(info, partition, answer)
        return True

    async def append_deferred(self, response: ProduceResponse) -> None:
        ctx = self._ctx
        async for partition, records, answer in in_time_slices(
            self.deferred, ctx.services.time_slice
        ):
            try:
                self._require_unchanged(partition)
                if self._append_now(partition, records, answer):
                    continue
                info = await self._append_in_worker(partition, records)
            except HeadraceError as error:
                self._refused(error, partition, answer)
            else:
                self._appended(info, partition, answer)
        answered = self.finish(response)
        if answered is not None:
            ctx.reply(answered)

    async def _append_in_worker(self, partition: Partition, records: memoryview) -> AppendInfo:
        """`append_produced`, with a worker for the records."""
        ctx = self._ctx
        try:
            checked = await ctx.services.record_work.in_worker(
                partial(
                    check_produced,
                    partition.settings,
                    records,
                    now_ms=ctx.services.clock.now_ms(),
                    produce_version=ctx.api_version,
                )
            )
        except ApiError as refusal:
            return duplicate_or_raise(partition, records, refusal)
        self._require_unchanged(partition)
        return partition.append(checked[0], checked[1], self._request.acks)

    def _require_unchanged(self, partition: Partition) -> None:
        """Others have had their turn: it may have been deleted, or have failed."""
        replicas = self._ctx.services.replicas
        if replicas.find(*partition.id) is not partition:
            offline = replicas.is_offline(*partition.id)
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )

    def finish(self, response: ProduceResponse) -> ProduceResponse | None:
        """The answer, if it is to be sent now."""
        request = self._request
        if request.acks == 0:
            if self.failed:
                # The only way to tell a producer that wants no answers.
                self._ctx.abort()
            self._ctx.reply(None)
            return None
        if self._delayed is None:
            return response
        self._delayed.start(response, request.timeout_ms / 1000)
        return None

    def _appended(
        self, info: AppendInfo, partition: Partition, answer: PartitionProduceResponse
    ) -> None:
        self.appended_to = partition
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.append_time_ms
        answer.log_start_offset = info.log_start_offset
        if self._request.acks == ACKS_ALL and not partition.is_committed(
            Offset(info.last_offset + 1)
        ):
            if self._delayed is None:
                self._delayed = DelayedProduce(self._ctx)
            self._delayed.wait_for(partition, Offset(info.last_offset + 1), answer)

    def _refused(
        self, error: HeadraceError, partition: Partition, answer: PartitionProduceResponse
    ) -> None:
        self.failed = True
        fill_error(error, partition, answer)


def fill_error(
    error: HeadraceError, partition: Partition, answer: PartitionProduceResponse
) -> None:
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


class DelayedProduce:
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
            # The offset stays whatever the outcome: it tells a producer that the batch was
            # appended, so that "not the leader" does not read as "nothing was written".
            answer.error_code = outcome
            self._missing -= 1
            if not self._missing:
                self._finish()

        partition.when_committed(end, committed, self._ctx.connection)

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
