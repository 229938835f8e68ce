"""Fetch: byte ranges of logs, now or when there is enough to tell.

Nothing here waits for the disk. Where indexes and headers are not in the page cache, a worker
brings them in, and all is looked at again.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, cast
from uuid import UUID

from headrace.broker import leader_hints
from headrace.broker.delayed_fetch import DelayedFetch
from headrace.broker.fetch_sessions import FetchPartitionState, FetchPlan, key_of
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.files import Buffer, FileRange
from headrace.core.ids import NodeId, Offset
from headrace.log.page_cache import CACHED_READS_ONLY, NotInPageCache
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.replication.flush_wait import unflushed
from headrace.replication.partition import Partition
from headrace.replication.reads import FetchIsolation, FetchPosition
from headrace.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

logger = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
# Of one answer, what is read while it is made; what is larger is read when it can be sent.
READ_AHEAD_BYTES = 64 * 1024
# How often what is not at hand is brought in for one fetch: a look needs some ten reads, one after
# the other. Should memory be so short that they go again meanwhile, the disk is waited for.
CACHE_ROUNDS_MAX: Final = 40
# How long a fetch that does not want to wait waits for a flush all the same.
FLUSH_WAIT_MS_MAX = 1_000

# Refused before the log was asked: Kafka then lists no aborted transactions, instead of null.
_REFUSED_BEFORE_LOG = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


def _refuse(_: FetchRequest, code: ErrorCode, __: str | None) -> Message:
    return FetchResponse(error_code=code, session_id=0, responses=[])


@handles(FetchRequest, refuse=_refuse)
def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse | None:
    """Read what is asked for; with too little there, wait for more up to `max_wait_ms`."""
    if _replica_id(request) >= 0:
        ctx.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    plan = _plan(ctx, request)
    result = _read_cached(ctx, request, plan)
    if result.not_cached:
        _read_later(ctx, request, plan, result.not_cached)
        return None
    wait_ms, wanted_bytes = request.max_wait_ms, request.min_bytes - result.size
    if wanted_bytes <= 0 or wait_ms <= 0:
        if result.size or not unflushed(result.partitions):
            return _respond(ctx, plan, result)
        # Nothing is found now, but something is written: a broker whose high watermark does not
        # wait for a disk would have shown it.
        wait_ms, wanted_bytes = FLUSH_WAIT_MS_MAX, 1
    if result.failed or not plan.partitions:
        return _respond(ctx, plan, result)
    respond = partial(_read_again, ctx, request, plan)
    delayed = DelayedFetch(ctx.connection, result.partitions, wanted_bytes, respond)
    delayed.start(_isolation(request), wait_ms)
    ctx.pause_timer()
    return None


def _read_again(ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
    """Answer with what there is after a wait."""
    ctx.resume_timer()
    try:
        result = _read_cached(ctx, request, plan)
        if result.not_cached:
            _read_later(ctx, request, plan, result.not_cached)
        else:
            ctx.reply(_respond(ctx, plan, result))
    except Exception:
        # Nobody above us: without this the connection would wait for the answer forever.
        logger.exception("closing connection after a fault in a waiting fetch")
        ctx.abort()


class FetchRead(NamedTuple):
    responses: list[tuple[FetchPartitionState, PartitionData]]
    size: int
    failed: bool
    partitions: list[Partition]
    served: list[tuple[Partition, int, int]]
    """Partitions that records were found in, with their number and size."""
    not_cached: list[NotInPageCache]
    """What has to be read by a worker first; the rest then means nothing."""


def _plan(ctx: RequestContext, request: FetchRequest) -> FetchPlan:
    by_id = ctx.api_version >= TOPIC_IDS_SINCE
    # Each once, however often it is named, and as it is named last: so Kafka reads it.
    once = {
        key: FetchPartitionState(
            key,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
        for key in (key_of(topic.topic_id, topic.topic, partition.partition, uses_topic_ids=by_id),)
    }
    wanted = list(once.values())
    if not request.session_id and request.session_epoch == -1:
        return FetchPlan(wanted, None, incremental=False)
    forgotten = [
        key_of(topic.topic_id, topic.topic, partition, uses_topic_ids=by_id)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    services = ctx.services
    return services.fetch_sessions.plan(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        uses_topic_ids=by_id,
        new_id=1 + int(services.randomness.random() * (2**31 - 2)),
        now_ms=services.clock.monotonic_ms(),
    )


def _read_cached(ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> FetchRead:
    with CACHED_READS_ONLY:
        return _read(ctx, request, plan)


def _read(ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> FetchRead:
    left = min(request.max_bytes, ctx.services.config.fetch_max_bytes)
    replica_id = _replica_id(request)
    replica = replica_id if replica_id >= 0 else None
    isolation = _isolation(request)
    responses = []
    partitions = []
    served = []
    not_cached = []
    size = 0
    failed = False
    for wanted in plan.partitions:
        data = PartitionData(
            partition_index=wanted.key.partition,
            high_watermark=-1,
            records=b"",
            aborted_transactions=[] if isolation is FetchIsolation.TXN_COMMITTED else None,
        )
        responses.append((wanted, data))
        try:
            partition = _find(ctx, wanted)
            found, end = _read_partition(
                partition, wanted, data, left, isolation, size, ctx.connection, replica
            )
            partitions.append(partition)
        except NotInPageCache as missing:
            not_cached.append(missing)
        except HeadraceError as error:
            data.error_code = error.code
            if error.code in _REFUSED_BEFORE_LOG:
                data.aborted_transactions = []
            failed = True
        else:
            failed = failed or data.diverging_epoch.end_offset >= 0
            if found:
                served.append((partition, end - wanted.fetch_offset, found))
                size += found
                left = max(left - found, 0)
    return FetchRead(responses, size, failed, partitions, served, not_cached)


def _read_later(
    ctx: RequestContext, request: FetchRequest, plan: FetchPlan, missing: Sequence[NotInPageCache]
) -> None:
    """Answer with what there is, once a worker has brought in what has to be looked at."""
    ctx.finish_in_task(_cache_and_read(ctx, request, plan, missing))


async def _cache_and_read(
    ctx: RequestContext, request: FetchRequest, plan: FetchPlan, missing: Sequence[NotInPageCache]
) -> None:
    for _ in range(CACHE_ROUNDS_MAX):
        await ctx.services.disk_reads.run(partial(_cache_all, missing))
        result = _read_cached(ctx, request, plan)
        missing = result.not_cached
        if not missing:
            break
    else:
        result = _read(ctx, request, plan)
    ctx.reply(_respond(ctx, plan, result))


def _cache_all(missing: Sequence[NotInPageCache]) -> None:
    for each in missing:
        each.load()


def _find(ctx: RequestContext, wanted: FetchPartitionState) -> Partition:
    key = wanted.key
    name = key.topic
    if ctx.api_version >= TOPIC_IDS_SINCE:
        image = ctx.services.metadata.image
        topic = image.topics_by_id.get(key.topic_id)
        if topic is None:
            if not wanted.name_seen:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            # A session that has seen the id knows the name; it may be another topic's now.
            made_again = wanted.name_seen in image.topics
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID
                if made_again
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        name = wanted.name_seen = topic.name
    if not ctx.allows(AclOperation.READ, ResourceType.TOPIC, name):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return ctx.services.replicas.require(name, key.partition)


def _replica_id(request: FetchRequest) -> NodeId:
    """The follower that asks; -1 for a consumer."""
    return NodeId(max(request.replica_id, request.replica_state.replica_id))


def _isolation(request: FetchRequest) -> FetchIsolation:
    return FetchIsolation.of(_replica_id(request), request.isolation_level)


def _read_partition(
    partition: Partition,
    wanted: FetchPartitionState,
    data: PartitionData,
    left: int,
    isolation: FetchIsolation,
    size: int,
    requester: object,
    replica: NodeId | None,
) -> tuple[int, int]:
    """Fill `data` of an answer that has `size` bytes already; how many bytes of records it got,
    and the offset behind them."""
    position = FetchPosition(
        Offset(wanted.fetch_offset), wanted.current_leader_epoch, wanted.last_fetched_epoch
    )
    # The first batch found leaves whole, whatever the limits: a client with limits smaller than
    # a batch must still get on (KIP-74).
    limit = min(left, wanted.partition_max_bytes)
    read = partition.read(
        position,
        isolation,
        limit,
        at_least_one=size == 0,
        requester=requester,
        replica=replica,
    )
    if read.records is not None and read.records.file.read_failed:
        # To be read here and now, so no more than a little.
        limit = min(limit, READ_AHEAD_BYTES)
        read = partition.read(
            position, isolation, limit, at_least_one=size == 0, requester=requester
        )
    found = read.records
    if found is not None:
        data.records = _records(found, READ_AHEAD_BYTES - size)
    if read.diverging is not None:
        epoch, end = read.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    data.high_watermark = read.high_watermark
    data.last_stable_offset = read.last_stable_offset
    data.log_start_offset = read.log_start_offset
    return 0 if found is None else found.size, read.next_offset


def _records(found: FileRange, read_ahead: int) -> Buffer:
    """The records themselves if they are few and at hand, else where they are."""
    try:
        if found.size <= read_ahead:
            records = found.read_cached()
            if records is not None:
                return records
        if found.file.read_failed:
            # Promised and not to be had, they would cost the client its connection every time.
            return found.read()
    except OSError as error:
        raise StorageError(f"cannot read {found.file.path}: {error}") from error
    # As good as the bytes for whoever sends it; `InProcessRequest` reads it.
    return cast(Buffer, found)


def _respond(ctx: RequestContext, plan: FetchPlan, result: FetchRead) -> FetchResponse:
    """The answer that leaves; only now do records count as fetched."""
    for partition, messages, size in result.served:
        partition.count_fetched(messages, size)
    response = _changed_by_topic(plan, result)
    if result.failed:
        leader_hints.add_to_fetch(ctx.services, ctx.origin, ctx.api_version, response)
    return response


def _changed_by_topic(plan: FetchPlan, result: FetchRead) -> FetchResponse:
    """Group the answers by topic; of an incremental session only what is news."""
    topics: dict[tuple[UUID, str], FetchableTopicResponse] = {}
    served = []
    for wanted, data in result.responses:
        if plan.session is not None:
            has_changes = wanted.take_changes(
                bool(data.records) or bool(data.error_code) or data.diverging_epoch.end_offset >= 0,
                data.high_watermark,
                data.log_start_offset,
            )
            if plan.incremental and not has_changes:
                continue
            if data.records:
                served.append(wanted.key)
        topic_id, name, _ = wanted.key
        topic = topics.get((topic_id, name))
        if topic is None:
            topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
            topics[topic_id, name] = topic
        topic.partitions.append(data)
    session_id = 0
    if plan.session is not None:
        session_id = plan.session.id
        plan.session.rotate(served)
    return FetchResponse(session_id=session_id, responses=list(topics.values()))
