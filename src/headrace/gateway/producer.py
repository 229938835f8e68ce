"""Writing: records to partitions, and what became of each of them."""

from collections.abc import Sequence
from typing import Final

from headrace.client.aio.client import AsyncClient
from headrace.client.core.lookups import partition_error
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.gateway.batch_sender import BATCHES_REMEMBERED, BatchSender
from headrace.gateway.batches import NO_PRODUCER, Batch, BatchEncoder, partition_records
from headrace.gateway.idempotency_keys import IdempotencyKeys
from headrace.gateway.topics import Topics
from headrace.gateway.values import (
    GatewayLimits,
    NotAttempted,
    OutRecord,
    Produced,
    TooManyRecords,
)

_TOPICS_REMEMBERED: Final = 10_000
_tuple = tuple.__new__


class GatewayProducer:
    """The gateway's writing half."""

    def __init__(
        self,
        client: AsyncClient,
        topics: Topics,
        idempotency_keys: IdempotencyKeys,
        limits: GatewayLimits,
    ) -> None:
        self._client = client
        self._topics = topics
        self._idempotency_keys = idempotency_keys
        self._limits = limits
        self._round_robin: dict[str, int] = {}
        # A connection serves what changes the cluster, or describes much of it, before what comes
        # behind: records must not wait for that.
        self._channel = client.requests.new_channel()
        # Brokers hang up on whoever wants no answers and sends what they refuse; the connection
        # of all others must not be the one.
        self._unacknowledged_channel = client.requests.new_channel()

    async def produce(
        self,
        topic: str,
        records: Sequence[OutRecord],
        acks: int,
        timeout_ms: int,
        key: str | None,
    ) -> list[Produced]:
        if not records:
            return []
        state = self._topics.known(topic) or await self._topics.find(topic, create=True)
        count = len(state.partitions)
        round_robin = self._round_robin.get(topic, 0)
        producer = NO_PRODUCER
        now_ms = self._client.clock.now_ms()
        if key is not None:
            if acks != -1:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "an idempotency key needs acks=all")
            wanted = partition_records(records, count, round_robin).indexes
            claim = await self._idempotency_keys.claim(
                topic, key, records, count, round_robin, len(wanted)
            )
            count, round_robin, producer = claim.partitions, claim.turn, (claim.producer_id, 0)
            # The very same batches each time, also where it is we who give records their time.
            now_ms = claim.timestamp_ms
        by_partition, unknown, next_round_robin = partition_records(records, count, round_robin)
        if producer is NO_PRODUCER or round_robin == self._round_robin.get(topic, 0):
            self._set_round_robin(topic, next_round_robin % count)
        encoder = BatchEncoder(
            records,
            now_ms=now_ms,
            bytes_max=self._limits.batch_bytes,
            producer=producer,
        )
        queues = {
            partition: encoder.encode(partition, indexes)
            for partition, indexes in by_partition.items()
        }
        if producer is not NO_PRODUCER:
            for partition, batches in queues.items():
                if len(batches) > BATCHES_REMEMBERED:
                    raise TooManyRecords(partition, BATCHES_REMEMBERED)
        sender = BatchSender(
            self._client,
            self._topics,
            topic,
            encoder,
            acks=acks,
            timeout_ms=timeout_ms,
            may_repeat=key is not None,
            batches_max=None if key is None else BATCHES_REMEMBERED,
            channel=self._channel if acks else self._unacknowledged_channel,
        )
        await sender.run(queues)
        return _results(topic, records, sender.done, unknown, count, acks)

    def _set_round_robin(self, topic: str, round_robin: int) -> None:
        if len(self._round_robin) >= _TOPICS_REMEMBERED:
            self._round_robin.clear()
        self._round_robin[topic] = round_robin


def _results(
    topic: str,
    records: Sequence[OutRecord],
    done: Sequence[Batch],
    unknown: Sequence[int],
    count: int,
    acks: int,
) -> list[Produced]:
    if len(done) == 1 and not unknown and acks and done[0].error is None:
        # Nearly every call: all records in one batch, in order.
        partition, base = done[0].partition, done[0].base_offset
        return [_tuple(Produced, (partition, base + delta, None)) for delta in range(len(records))]
    out: list[Produced | None] = [None] * len(records)
    for index in unknown:
        wanted = records[index].partition
        assert wanted is not None
        out[index] = Produced(wanted, -1, partition_error(topic, wanted, count))
    for batch in done:
        _fill_results(out, batch, acks)
    assert None not in out, "every record has an outcome"
    return out  # type: ignore[return-value]  # asserted above


def _fill_results(out: list[Produced | None], batch: Batch, acks: int) -> None:
    partition, base, error = batch.partition, batch.base_offset, batch.error
    if error is not None:
        for delta, index in enumerate(batch.indexes):
            out[index] = Produced(partition, -1, _record_error(error, batch, delta))
    elif not acks:
        for index in batch.indexes:
            out[index] = Produced(partition, -1)
    else:
        for delta, index in enumerate(batch.indexes):
            out[index] = _tuple(Produced, (partition, base + delta, None))


def _record_error(error: HeadraceError, batch: Batch, delta: int) -> HeadraceError:
    """What the broker said of this record, where it told them apart."""
    if not batch.record_errors:
        return error
    reason = batch.record_errors.get(delta)
    if reason is None:
        return NotAttempted(batch.partition)
    return ApiError(error.code, reason or error.message, hint=error.hint)
