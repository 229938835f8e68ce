"""Send records asynchronously: batched, retried, in order and without duplicates."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.aio.sender import ROOM_PER_RECORD, Sender
from headrace.client.core.accumulator import AppendResult
from headrace.client.core.arguments import check_record
from headrace.client.core.models import Headers, RecordMetadata
from headrace.client.core.settings import ProducerSettings
from headrace.core.errors import HeadraceError
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.network.errors import ClientClosed
from headrace.protocol.murmur2 import partition_for_key

Delivery = asyncio.Future[RecordMetadata]

_SAME_BATCH = AppendResult.SAME_BATCH
_BATCH_FULL = AppendResult.BATCH_FULL


class AsyncProducer:
    """Gathers records into batches and delivers them; made by `AsyncClient.producer`.

        future = await producer.send("orders", b"...", key=b"42")   # waits only for buffer room
        metadata = await future                                      # written, as acks demands

    Delivery goes on in the background until `close`, which flushes.
    """

    def __init__(
        self,
        requests: AsyncClusterRequests,
        settings: ProducerSettings,
        on_close: Callable[["AsyncProducer"], None],
    ) -> None:
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._now_ms = requests.clock.now_ms
        self._sender = Sender(requests, settings, _complete)
        self._next_partition: dict[str, int] = {}
        self._closed = False

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand over a record; returns a future for its delivery as soon as there is room.

        Without `partition` the key decides (murmur2, as the Java client), without a key
        partitions take turns.
        """
        if self._closed:
            raise ClientClosed("producer")
        check_record(topic, value, key, headers, partition, timestamp_ms)
        sender = self._sender
        count = sender.partition_counts.get(topic)
        if count is None or (partition is not None and not 0 <= partition < count):
            count = await sender.count_partitions(topic, partition)
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                partition = self._next_partition.get(topic, 0) % count
                self._next_partition[topic] = partition + 1
        size = ROOM_PER_RECORD + len(value or b"") + len(key or b"")
        if sender.must_wait(size):
            await sender.wait_for_room(size)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        delivery: Delivery = self._loop.create_future()
        now_ms = self._loop.time() * 1000
        appended = sender.accumulator.append(
            topic, partition, key, value, headers, timestamp_ms, delivery, now_ms
        )
        if appended is not _SAME_BATCH:
            sender.wake_up()
            if appended is _BATCH_FULL:
                # A caller that never waits would keep the sender from running at all.
                await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is delivered."""
        delivery = await self.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return await delivery

    async def send_batch(self, partition: TopicPartition, batch: Buffer) -> Delivery:
        """Send one encoded batch as it is; the future has the offset of its first record.

        Only the producer's id and sequence are written into it: for those who encode by columns.
        """
        if self._closed:
            raise ClientClosed("producer")
        sender = self._sender
        if not sender.knows(partition):
            await sender.count_partitions(partition.topic, partition.partition)
        await sender.wait_for_room(len(batch))
        delivery: Delivery = self._loop.create_future()
        sender.accumulator.append_batch(partition, batch, delivery, self._loop.time() * 1000)
        sender.wake_up()
        return delivery

    async def flush(self) -> None:
        """Send what is buffered without waiting for linger; return when all is settled."""
        await self._sender.flush()

    async def close(self) -> None:
        """Flush, then stop. Records that cannot be delivered fail by their delivery timeout."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._sender.flush()
        finally:
            await self._sender.stop()
            self._on_close(self)


def _complete(delivery: Delivery, outcome: RecordMetadata | HeadraceError) -> None:
    if delivery.done():
        return
    if isinstance(outcome, HeadraceError):
        delivery.set_exception(outcome)
        # Whoever only flushes must not be told of it a second time by the garbage collector.
        delivery.exception()
    else:
        delivery.set_result(outcome)
