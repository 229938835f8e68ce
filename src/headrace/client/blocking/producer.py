"""Send records from ordinary threads; a thread of the producer's own does the waiting."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from headrace.client.aio.client import AsyncClient
from headrace.client.aio.sender import ROOM_PER_RECORD, Sender
from headrace.client.core.accumulator import AppendResult
from headrace.client.core.arguments import check_record
from headrace.client.core.errors import BufferFull
from headrace.client.core.models import Headers, RecordMetadata
from headrace.client.core.settings import ClientSettings, ProducerSettings
from headrace.client.system import SystemClock
from headrace.core.errors import HeadraceError
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.network.errors import ClientClosed
from headrace.protocol.murmur2 import partition_for_key

Delivery = Future[RecordMetadata]

_SAME_BATCH = AppendResult.SAME_BATCH
T = TypeVar("T")


class Producer:
    """Gathers records into batches and delivers them; made by `Client.producer`.

    `send` may be called from any thread and encodes the record in it; the producer's own thread
    is woken only when there is a batch to look at. Callbacks of the futures run in that thread
    and must not wait for the producer.
    """

    def __init__(self, client_settings: ClientSettings, settings: ProducerSettings) -> None:
        self._settings = settings
        self._client_settings = client_settings
        self._now_ms = SystemClock().now_ms
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._room_wanted = 0
        self._next_partition: dict[str, int] = {}
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-producer", daemon=True
        )
        self._thread.start()
        self._client, self._sender = self._call(self._start())

    async def _start(self) -> tuple[AsyncClient, Sender]:
        client = AsyncClient(self._client_settings)
        sender = Sender(
            client.requests,
            self._settings,
            _complete,
            lock=self._lock,
            on_progress=self._notify_room,
        )
        return client, sender

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand over a record; blocks only while the buffer is full.

        Without `partition` the key decides (murmur2, as the Java client), without a key
        partitions take turns.
        """
        check_record(topic, value, key, headers, partition, timestamp_ms)
        count = self._sender.partition_counts.get(topic)
        if count is None or (partition is not None and not 0 <= partition < count):
            count = self._call(self._sender.count_partitions(topic, partition))
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        delivery: Delivery = Future()
        accumulator = self._sender.accumulator
        with self._lock:
            if partition is None:
                partition = self._choose(topic, key, count)
            self._make_room(ROOM_PER_RECORD + len(value or b"") + len(key or b""))
            now_ms = self._loop.time() * 1000
            appended = accumulator.append(
                topic, partition, key, value, headers, timestamp_ms, delivery, now_ms
            )
        if appended is not _SAME_BATCH:
            self._loop.call_soon_threadsafe(self._sender.wake_up)
        return delivery

    def send_and_wait(
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
        return self.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        ).result()

    def send_batch(self, partition: TopicPartition, batch: Buffer) -> Delivery:
        """Send one encoded batch as it is; the future has the offset of its first record.

        Only the producer's id and sequence are written into it: for those who encode by columns.
        """
        if not self._sender.knows(partition):
            self._call(self._sender.count_partitions(partition.topic, partition.partition))
        delivery: Delivery = Future()
        with self._lock:
            self._make_room(len(batch))
            self._sender.accumulator.append_batch(
                partition, batch, delivery, self._loop.time() * 1000
            )
        self._loop.call_soon_threadsafe(self._sender.wake_up)
        return delivery

    def flush(self) -> None:
        """Send what is buffered without waiting for linger; return when all is settled."""
        self._call(self._sender.flush())

    def close(self) -> None:
        """Flush, then end the thread. Undeliverable records fail by their delivery timeout."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._call(self._sender.flush())
        finally:
            self._call(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_for_key(key, count)
        partition = self._next_partition.get(topic, 0) % count
        self._next_partition[topic] = partition + 1
        return partition

    def _make_room(self, size: int) -> None:
        """Wait, with the lock held, until the buffer takes `size` bytes."""
        if self._closed:
            raise ClientClosed("producer")
        if self._sender.accumulator.has_room(size):
            return
        limit_ms = self._settings.block_ms_max
        self._loop.call_soon_threadsafe(self._sender.wake_up)
        self._room_wanted += 1
        try:
            found = self._room.wait_for(
                lambda: self._sender.accumulator.has_room(size), limit_ms / 1000
            )
        finally:
            self._room_wanted -= 1
        if not found:
            raise BufferFull(
                f"no room for {size} bytes within {limit_ms} ms",
                hint="the brokers are slower than the sender; raise buffer_bytes or send less",
            )

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise ClientClosed("producer")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _notify_room(self) -> None:
        if self._room_wanted:
            with self._lock:
                self._room.notify_all()

    async def _stop(self) -> None:
        await self._sender.stop()
        await self._client.close()


def _complete(delivery: Delivery, outcome: RecordMetadata | HeadraceError) -> None:
    if not delivery.set_running_or_notify_cancel():
        return
    if isinstance(outcome, HeadraceError):
        delivery.set_exception(outcome)
    else:
        delivery.set_result(outcome)
