"""Writing batches: one request per leader, again where a leader moved, an outcome for each.

Without a producer id nothing is sent twice that may already be in a log; such a failure is the
caller's to judge. With one, everything that may heal is tried again until time is up.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.client.aio.client import AsyncClient
from headrace.client.core.errors import error_for
from headrace.client.core.lookups import STALE_METADATA, partition_error
from headrace.client.core.produce_outcome import ProduceOutcome, failure_outcome, response_outcome
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import NO_TOPIC_ID, LeaderEpoch, NodeId, TopicPartition
from headrace.gateway.batches import Batch, BatchEncoder
from headrace.gateway.topics import Topics
from headrace.gateway.values import DuplicateWithoutOffset, NotAttempted, TooManyRecords
from headrace.network.send_request import SHARED_CHANNEL, SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

# Brokers remember this many batches of a producer.
BATCHES_REMEMBERED: Final = 5
_LIMIT_KEY: Final = "max.message.bytes"
# How much longer to wait for an answer than the broker may take.
_RESPONSE_MARGIN_MS: Final = 2_000
_LAST_VERSION_BY_NAME: Final = 12
# What lies in the records themselves: others of the same partition may well be taken.
_RECORD_ERRORS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# What lies in the topic: every record would be refused like the first.
_TOPIC_ERRORS: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class BatchSender:
    """One call: its batches, partition by partition in order, until each has an outcome."""

    def __init__(
        self,
        client: AsyncClient,
        topics: Topics,
        topic: str,
        encoder: BatchEncoder,
        *,
        acks: int,
        timeout_ms: float,
        may_repeat: bool,
        batches_max: int | None = None,
        channel: int = SHARED_CHANNEL,
    ) -> None:
        """`may_repeat` when a batch that is written twice does no harm.

        A partition takes no more than `batches_max`, into however many its topic makes us cut.
        """
        self._client = client
        self._topics = topics
        self._topic = topic
        self._encoder = encoder
        self._acks = acks
        self._may_repeat = may_repeat
        self._batches_max = batches_max
        self._channel = channel
        self._deadline_ms = client.requests.now_ms() + timeout_ms
        self._queues: dict[int, list[Batch]] = {}
        self._too_large: list[Batch] = []
        self.done: list[Batch] = []

    async def run(self, queues: dict[int, list[Batch]]) -> None:
        self._queues = queues
        failures = 0
        while self._queues:
            to_retry = await self._send_round()
            await self._split_too_large()
            if not to_retry:
                failures = 0
                continue
            failures += 1
            delay_ms = self._client.requests.session.backoff.delay_ms(failures)
            if self._client.requests.now_ms() + delay_ms >= self._deadline_ms:
                for error, partition in to_retry:
                    self._stop_at_first(partition, error)
                continue
            await asyncio.sleep(delay_ms / 1000)
            await self._refresh_metadata(to_retry)

    async def _send_round(self) -> list[tuple[HeadraceError, int]]:
        """Send the first batch of every partition; those that may be sent again, with reasons."""
        by_node: dict[NodeId, list[Batch]] = {}
        to_retry: list[tuple[HeadraceError, int]] = []
        for partition, batches in self._queues.items():
            node = self._topics.leader(self._topic, partition)
            if node is None:
                self._topics.forget(self._topic)
                where = f"partition {partition} of {self._topic!r}"
                to_retry.append((error_for(ErrorCode.LEADER_NOT_AVAILABLE, None, where), partition))
            else:
                by_node.setdefault(node, []).append(batches[0])
        asks = [(self._request(node, batches), batches) for node, batches in by_node.items()]
        pending = [(self._client.requests.submit(ask), batches) for ask, batches in asks]
        for future, batches in pending:
            try:
                outcome = await future
            except HeadraceError as error:
                known = failure_outcome(error)
                for batch in batches:
                    self._handle_error(batch, error, known, to_retry)
            else:
                self._handle_response(batches, outcome, to_retry)
        return to_retry

    def _request(self, node: NodeId, batches: Sequence[Batch]) -> SendRequest:
        left_ms = max(int(self._deadline_ms - self._client.requests.now_ms()), 1)
        topic_id = self._client.requests.session.cluster.topic_id(self._topic)
        topic = TopicProduceData(
            name=self._topic,
            topic_id=topic_id,
            partition_data=[
                PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches
            ],
        )
        return SendRequest(
            node,
            ProduceRequest(acks=self._acks, timeout_ms=left_ms, topic_data=[topic]),
            ProduceResponse,
            left_ms + _RESPONSE_MARGIN_MS,
            version_max=1000 if topic_id != NO_TOPIC_ID else _LAST_VERSION_BY_NAME,
            expects_response=self._acks != 0,
            channel=self._channel,
        )

    def _handle_response(
        self,
        batches: Sequence[Batch],
        response: Message | None,
        to_retry: list[tuple[HeadraceError, int]],
    ) -> None:
        if not isinstance(response, ProduceResponse):
            for batch in batches:
                self._finish(batch)
            return
        outcomes = {
            outcome.index: outcome
            for topic in response.responses
            for outcome in topic.partition_responses
        }
        for batch in batches:
            outcome = outcomes.get(batch.partition)
            if outcome is None:
                missing = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "not answered", "produce")
                self._handle_error(batch, missing, ProduceOutcome.UNKNOWN, to_retry)
                continue
            known = response_outcome(outcome.error_code, outcome.base_offset)
            if not outcome.error_code:
                batch.base_offset = outcome.base_offset
                self._finish(batch)
            elif known is ProduceOutcome.WRITTEN:
                duplicate = DuplicateWithoutOffset(self._topic, batch.partition)
                self._stop_at_first(batch.partition, duplicate)
            else:
                self._handle_error_response(batch, outcome, known, to_retry)

    def _handle_error_response(
        self,
        batch: Batch,
        outcome: PartitionProduceResponse,
        known: ProduceOutcome,
        to_retry: list[tuple[HeadraceError, int]],
    ) -> None:
        leader = outcome.current_leader
        if leader.leader_id >= 0:
            self._client.requests.session.cluster.update_leader(
                TopicPartition(self._topic, batch.partition),
                NodeId(leader.leader_id),
                LeaderEpoch(leader.leader_epoch),
            )
        batch.record_errors = {
            bad.batch_index: bad.batch_index_error_message or "" for bad in outcome.record_errors
        }
        where = f"produce to {self._topic}-{batch.partition}"
        error = error_for(outcome.error_code, outcome.error_message, where)
        self._handle_error(batch, error, known, to_retry)

    def _handle_error(
        self,
        batch: Batch,
        error: HeadraceError,
        known: ProduceOutcome,
        to_retry: list[tuple[HeadraceError, int]],
    ) -> None:
        code = error.code
        if code in STALE_METADATA:
            self._topics.forget(self._topic)
        if code in _TOO_LARGE and len(batch.indexes) > 1:
            self._too_large.append(batch)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._batches_max is not None:
            # The first run of this key was cut smaller: the topic's limit has been raised since.
            self._split(batch, DuplicateWithoutOffset(self._topic, batch.partition))
        elif self._may_retry(error, known):
            to_retry.append((error, batch.partition))
        elif code in _TOPIC_ERRORS:
            self._fail_partition(batch.partition, error)
        elif code in _RECORD_ERRORS and self._batches_max is None:
            self._fail_records(batch, error)
        else:
            self._stop_at_first(batch.partition, error)

    async def _split_too_large(self) -> None:
        refused, self._too_large = self._too_large, []
        if not refused:
            return
        most = self._batches_max
        limit = None if most is None else await self._bytes_max()
        for batch in refused:
            self._split(batch, TooManyRecords(batch.partition, most or 0), limit)

    async def _bytes_max(self) -> int | None:
        """The topic's own limit, where it is told; it says how many batches there will be."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        try:
            found = await self._client.admin.describe_configs([resource], keys=[_LIMIT_KEY])
            return int(found[resource][_LIMIT_KEY].value or "")
        except (HeadraceError, LookupError, ValueError):
            return None

    def _split(self, refused: Batch, error: HeadraceError, limit: int | None = None) -> None:
        """The topic's own limit is below ours: halve every batch that it would refuse as well.

        Where that makes too many, or cannot be, `error` is the outcome.

        All of them at once, so that where there will be too many nothing is written yet.
        Sequences stay with their records, so a repeated key is cut at the same places.
        """
        partition = refused.partition
        if len(refused.indexes) == 1:
            self._stop_at_first(partition, error)
            return
        if limit is None or limit >= len(refused.data):
            limit, at_once = len(refused.data) - 1, None
        else:
            at_once = limit
        queue: list[Batch] = []
        for batch in self._queues[partition]:
            if len(batch.data) > limit and len(batch.indexes) > 1:
                queue += self._encoder.split(partition, batch.indexes, batch.base_sequence, at_once)
            else:
                queue.append(batch)
        self._queues[partition] = queue
        if self._batches_max is not None:
            written = sum(batch.partition == partition for batch in self.done)
            if written + len(queue) > self._batches_max:
                self._fail_partition(partition, error)

    def _may_retry(self, error: HeadraceError, known: ProduceOutcome) -> bool:
        return error.retriable and (self._may_repeat or known is ProduceOutcome.NOT_WRITTEN)

    def _finish(self, batch: Batch) -> None:
        self.done.append(batch)
        queue = self._queues[batch.partition]
        del queue[0]
        if not queue:
            del self._queues[batch.partition]

    def _fail_records(self, batch: Batch, error: HeadraceError) -> None:
        """Records that are refused for what they are fail alone; the others are sent without them.

        The broker names them, or they are found by halving.
        """
        partition, indexes, reasons = batch.partition, batch.indexes, batch.record_errors
        bad = sorted(delta for delta in reasons if 0 <= delta < len(indexes))
        if len(indexes) == 1 or len(bad) == len(indexes):
            batch.error = error
            self._finish(batch)
            return
        queue = self._queues[partition]
        if not bad:
            queue[:1] = self._encoder.split(partition, indexes, batch.base_sequence)
            return
        refused = Batch(
            partition, [indexes[delta] for delta in bad], batch.base_sequence, bytearray()
        )
        refused.error = error
        refused.record_errors = {at: reasons[delta] for at, delta in enumerate(bad)}
        self.done.append(refused)
        good = [index for delta, index in enumerate(indexes) if delta not in reasons]
        queue[:1] = self._encoder.encode(partition, good, batch.base_sequence)

    def _stop_at_first(self, partition: int, error: HeadraceError) -> None:
        """The partition's first batch has failed for good, and order forbids those behind it.

        Under a key their sequences would leave a hole; after an unknown outcome, or when time is
        up, a client that sends the first again would find it behind them.
        """
        first, *behind = self._queues.pop(partition)
        first.error = error
        for batch in behind:
            batch.error = NotAttempted(partition)
        self.done += [first, *behind]

    def _fail_partition(self, partition: int, error: HeadraceError) -> None:
        """What is wrong lies in the partition, or in all of its batches."""
        for batch in self._queues.pop(partition, ()):
            batch.error = error
            self.done.append(batch)

    async def _refresh_metadata(self, to_retry: Sequence[tuple[HeadraceError, int]]) -> None:
        """New metadata before the next round; a topic that is gone ends the call."""
        try:
            state = await self._topics.find(self._topic, create=False)
        except HeadraceError as error:
            if error.retriable:
                return
            for _, partition in to_retry:
                self._fail_partition(partition, error)
        else:
            count = len(state.partitions)
            for _, partition in to_retry:
                if partition >= count:
                    self._fail_partition(partition, partition_error(self._topic, partition, count))
