"""Produce: append batches, and answer as `acks` asks.

The append itself happens before this handler returns, in arrival order, unless it takes so long
that others have to have their turn. With acks=all the answer waits until every batch is below its
partition's high watermark.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, cast
from uuid import UUID

from headrace.broker import leader_hints
from headrace.broker.delayed_produce import (
    DelayedProduce,
    fill_appended,
    fill_error,
    must_wait,
)
from headrace.broker.request import RequestContext, RequestOrigin, is_allowed
from headrace.broker.routes import handles
from headrace.broker.services import Services
from headrace.broker.time_slice import in_time_slices
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.log.partition_log import AppendInfo
from headrace.metadata.names import COORDINATOR_TOPICS
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.records.budget import OverBudget
from headrace.replication.partition import ACKS_ALL, Partition
from headrace.replication.produce import append_produced, check_produced, duplicate_or_raise
from headrace.security.authorizer import AclOperation, ResourceType

ACKS: Final = frozenset({0, 1, ACKS_ALL})
_NOTHING = memoryview(b"")
# No client is held back yet; whoever would hold it back says so here, for both ways.
NO_THROTTLE_MS: Final = 0

TOPIC_IDS_SINCE = 13
# Kafka lets tools of this client id, and nobody else, write to the topics of coordinators.
ADMIN_CLIENT_ID = "__admin_client"


@handles(ProduceRequest)
def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append every batch that is good, and say of each bad one why it is not."""
    work = _BatchAppender(ctx, request)
    response = ProduceResponse(responses=[], throttle_time_ms=NO_THROTTLE_MS)
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
        results: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
        for data in topic.partition_data:
            yield
            result = PartitionProduceResponse(
                index=data.index, error_code=refused, base_offset=-1, log_start_offset=-1
            )
            results.append(result)
            if refused:
                work.failed = True
                continue
            try:
                partition = ctx.services.replicas.require(name, data.index)
            except ApiError as error:
                result.error_code = error.code
                work.failed = True
                continue
            work.append(partition, cast(memoryview, data.records or _NOTHING), result)


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
    if not is_allowed(services, origin, AclOperation.WRITE, ResourceType.TOPIC, name):
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
        self, partition: Partition, records: memoryview, result: PartitionProduceResponse
    ) -> None:
        # The first is never put off, or a busy machine would put off every request.
        turn_is_over = self._has_appended and self._ctx.services.time_slice.is_over()
        self._has_appended = True
        if self.deferred or turn_is_over or not self._append_now(partition, records, result):
            # A copy: the buffer of the connection is used again as soon as this call is over.
            self.deferred.append((partition, memoryview(bytearray(records)), result))

    def _append_now(
        self, partition: Partition, records: memoryview, result: PartitionProduceResponse
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
            self._refused(error, partition, result)
        except OverBudget:
            return False
        else:
            self._appended(info, partition, result)
        return True

    async def append_deferred(self, response: ProduceResponse) -> None:
        ctx = self._ctx
        async for partition, records, result in in_time_slices(
            self.deferred, ctx.services.time_slice
        ):
            try:
                self._require_unchanged(partition)
                if self._append_now(partition, records, result):
                    continue
                info = await self._append_in_worker(partition, records)
            except HeadraceError as error:
                self._refused(error, partition, result)
            else:
                self._appended(info, partition, result)
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
        if self._ctx.services.replicas.require(*partition.id) is not partition:
            # The topic was deleted, and its name given anew.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def finish(self, response: ProduceResponse) -> ProduceResponse | None:
        """The answer, if it is to be sent now."""
        request, ctx = self._request, self._ctx
        if request.acks == 0:
            if self.failed:
                # The only way to tell a producer that wants no answers.
                ctx.abort()
            ctx.reply(None)
            return None
        if self._delayed is not None:
            self._delayed.start(request.timeout_ms / 1000, partial(self._respond_late, response))
            return None
        if self.failed:
            leader_hints.add_to_produce(ctx.services, ctx.origin, ctx.api_version, response)
        return response

    def _respond_late(self, response: ProduceResponse) -> None:
        ctx = self._ctx
        leader_hints.add_to_produce(ctx.services, ctx.origin, ctx.api_version, response)
        ctx.reply(response)

    def _appended(
        self, info: AppendInfo, partition: Partition, result: PartitionProduceResponse
    ) -> None:
        self.appended_to = partition
        fill_appended(info, result)
        if must_wait(partition, info, self._request.acks):
            if self._delayed is None:
                self._delayed = DelayedProduce()
            self._delayed.wait_for(partition, info, result, self._ctx.connection)

    def _refused(
        self, error: HeadraceError, partition: Partition, result: PartitionProduceResponse
    ) -> None:
        self.failed = True
        fill_error(error, partition, result)
