"""Writing: records to partitions, and what became of each of them."""

from collections.abc import Sequence
from typing import Final

from headrace.client.aio.client import AsyncClient
from headrace.client.core.lookups import partition_error
from headrace.client.core.operations import SHARED_CHANNEL
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.gateway.batching import NOBODY, Batch, Packer, spread
from headrace.gateway.idempotency import Claims
from headrace.gateway.sending import BATCHES_REMEMBERED, Send
from headrace.gateway.topics import Topics
from headrace.gateway.values import (
    GatewayLimits,
    NotTried,
    OutRecord,
    Produced,
    TooManyRecords,
)

_TOPICS_REMEMBERED: Final = 10_000
_tuple = tuple.__new__


class Producing:
    """The gateway's writing half."""

    def __init__(
        self, client: AsyncClient, topics: Topics, claims: Claims, limits: GatewayLimits
    ) -> None:
        self._client = client
        self._topics = topics
        self._claims = claims
        self._limits = limits
        self._turns: dict[str, int] = {}
        # Brokers hang up on whoever wants no answers and sends what they refuse; the connection
        # of all others must not be the one.
        self._without_answers = client.new_channel()

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
        if acks not in (-1, 0, 1):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or 1")
        state = self._topics.known(topic) or await self._topics.find(topic, create=True)
        count = len(state.partitions)
        turn = self._turns.get(topic, 0)
        producer = NOBODY
        now_ms = self._client.clock.now_ms()
        if key is not None:
            if acks != -1:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "an idempotency key needs acks=all")
            wanted = spread(records, count, turn).places
            claim = await self._claims.claim(topic, key, records, count, turn, len(wanted))
            count, turn, producer = claim.partitions, claim.turn, (claim.producer_id, 0)
            # The very same batches each time, also where it is we who give records their time.
            now_ms = claim.timestamp_ms
        places, strays, next_turn = spread(records, count, turn)
        if producer is NOBODY or turn == self._turns.get(topic, 0):
            self._take_turn(topic, next_turn % count)
        packer = Packer(
            records,
            now_ms=now_ms,
            bytes_max=self._limits.batch_bytes,
            producer=producer,
        )
        queues = {
            partition: packer.pack(partition, indexes) for partition, indexes in places.items()
        }
        if producer is not NOBODY:
            for partition, batches in queues.items():
                if len(batches) > BATCHES_REMEMBERED:
                    raise TooManyRecords(partition, BATCHES_REMEMBERED)
        send = Send(
            self._client,
            self._topics,
            topic,
            packer,
            acks=acks,
            timeout_ms=timeout_ms,
            may_repeat=key is not None,
            batches_max=None if key is None else BATCHES_REMEMBERED,
            channel=SHARED_CHANNEL if acks else self._without_answers,
        )
        await send.run(queues)
        return _outcomes(topic, records, send.done, strays, count, acks)

    def _take_turn(self, topic: str, turn: int) -> None:
        if len(self._turns) >= _TOPICS_REMEMBERED:
            self._turns.clear()
        self._turns[topic] = turn


def _outcomes(
    topic: str,
    records: Sequence[OutRecord],
    done: Sequence[Batch],
    strays: Sequence[int],
    count: int,
    acks: int,
) -> list[Produced]:
    if len(done) == 1 and not strays and acks and done[0].error is None:
        # Nearly every call: all records in one batch, in order.
        partition, base = done[0].partition, done[0].base_offset
        return [_tuple(Produced, (partition, base + delta, None)) for delta in range(len(records))]
    out: list[Produced | None] = [None] * len(records)
    for index in strays:
        wanted = records[index].partition
        assert wanted is not None
        out[index] = Produced(wanted, -1, partition_error(topic, wanted, count))
    for batch in done:
        _place(out, batch, acks)
    assert None not in out, "every record has an outcome"
    return out  # type: ignore[return-value]  # asserted above


def _place(out: list[Produced | None], batch: Batch, acks: int) -> None:
    partition, base, error = batch.partition, batch.base_offset, batch.error
    if error is not None:
        for delta, index in enumerate(batch.indexes):
            out[index] = Produced(partition, -1, _own_reason(error, batch, delta))
    elif not acks:
        for index in batch.indexes:
            out[index] = Produced(partition, -1)
    else:
        for delta, index in enumerate(batch.indexes):
            out[index] = _tuple(Produced, (partition, base + delta, None))


def _own_reason(error: HeadraceError, batch: Batch, delta: int) -> HeadraceError:
    """What the broker said of this record, where it told them apart."""
    if not batch.reasons:
        return error
    reason = batch.reasons.get(delta)
    if reason is None:
        return NotTried(batch.partition)
    return ApiError(error.code, reason or error.message, hint=error.hint)
