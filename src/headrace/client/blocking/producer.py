"""Send records from ordinary threads; a thread of the producer's own does the waiting."""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from headrace.client.aio.client import AsyncClient
from headrace.client.aio.sender import ROOM_PER_RECORD, Sender
from headrace.client.core.failures import BufferFull, ClientClosed
from headrace.client.core.models import Headers, RecordMetadata
from headrace.client.core.sending import Appended
from headrace.client.core.settings import ClientSettings, ProducerSettings
from headrace.client.real import SystemClock
from headrace.core.errors import HeadraceError
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.protocol.murmur2 import partition_for_key

Delivery = Future[RecordMetadata]
T = TypeVar("T")


class _ReadyBatch(NamedTuple):
    """A batch that the caller has encoded."""

    partition: TopicPartition
    data: Buffer
    delivery: Delivery


_Item = tuple[str, int, bytes | None, Buffer | None, Headers, int, Delivery] | _ReadyBatch


class Producer:
    """Gathers records into batches and delivers them; made by `Client.producer`.

    `send` may be called from any thread. It only puts the record into an inbox, from which the
    producer's thread takes it; the order of one thread's sends is kept.
    """

    def __init__(self, client_settings: ClientSettings, settings: ProducerSettings) -> None:
        self._settings = settings
        self._client_settings = client_settings
        self._now_ms = SystemClock().now_ms
        self._inbox: deque[_Item] = deque()
        self._inbox_bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._room_wanted = 0
        self._is_pumping = False
        self._turns: dict[str, int] = {}
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-producer", daemon=True
        )
        self._thread.start()
        self._client, self._sender = self._call(self._start())

    async def _start(self) -> tuple[AsyncClient, Sender]:
        client = AsyncClient(self._client_settings)
        return client, Sender(client, self._settings, _settle, self._tell_room)

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
        count = self._sender.partition_counts.get(topic)
        if count is None or (partition is not None and not 0 <= partition < count):
            count = self._call(self._sender.count_partitions(topic, partition))
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                partition = self._turns.get(topic, 0) % count
                self._turns[topic] = partition + 1
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        size = ROOM_PER_RECORD + len(value or b"") + len(key or b"")
        delivery: Delivery = Future()
        self._put((topic, partition, key, value, headers, timestamp_ms, delivery), size)
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
        self._put(_ReadyBatch(partition, batch, delivery), len(batch))
        return delivery

    def flush(self) -> None:
        """Send what is buffered without waiting for linger; return when all is settled."""
        self._call(self._flush())

    def close(self) -> None:
        """Flush, then end the thread. Undeliverable records fail by their delivery timeout."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._call(self._flush())
        finally:
            self._call(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # -- the caller's side

    def _put(self, item: "_Item", size: int) -> None:
        with self._lock:
            if self._closed:
                raise ClientClosed("producer")
            if self._is_full(size):
                self._wait_for_room(size)
            self._inbox.append(item)
            self._inbox_bytes += size
            wake = not self._is_pumping
            self._is_pumping = True
        if wake:
            self._loop.call_soon_threadsafe(self._pump)

    def _is_full(self, size: int) -> bool:
        held = self._inbox_bytes + self._sender.sending.buffered_bytes
        return held > 0 and held + size > self._settings.buffer_bytes

    def _wait_for_room(self, size: int) -> None:
        limit_ms = self._settings.block_ms_max
        self._room_wanted += 1
        try:
            has_room = self._room.wait_for(lambda: not self._is_full(size), limit_ms / 1000)
        finally:
            self._room_wanted -= 1
        if not has_room:
            raise BufferFull(
                f"no room for {size} bytes within {limit_ms} ms",
                hint="the brokers are slower than the sender; raise buffer_bytes or send less",
            )

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise ClientClosed("producer")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- the thread's side

    def _pump(self) -> None:
        """Move the inbox into the core, at most one buffer's worth at a time."""
        sending, now_ms = self._sender.sending, self._client.now_ms()
        nudge = False
        while True:
            with self._lock:
                items = list(self._inbox)
                self._inbox.clear()
                self._inbox_bytes = 0
                if not items:
                    self._is_pumping = False
                    break
            for item in items:
                if isinstance(item, _ReadyBatch):
                    self._append_batch(item, now_ms)
                    nudge = True
                elif sending.append(*item, now_ms) is not Appended.NOTHING_NEW:
                    nudge = True
        if nudge:
            self._sender.nudge()

    def _append_batch(self, ready: "_ReadyBatch", now_ms: float) -> None:
        try:
            self._sender.sending.append_batch(ready.partition, ready.data, ready.delivery, now_ms)
        except HeadraceError as error:
            ready.delivery.set_exception(error)

    def _tell_room(self) -> None:
        if self._room_wanted:
            with self._lock:
                self._room.notify_all()

    async def _flush(self) -> None:
        self._pump()
        await self._sender.flush()

    async def _stop(self) -> None:
        await self._sender.stop()
        await self._client.close()


def _settle(delivery: Delivery, outcome: RecordMetadata | HeadraceError) -> None:
    if not delivery.set_running_or_notify_cancel():
        return
    if isinstance(outcome, HeadraceError):
        delivery.set_exception(outcome)
    else:
        delivery.set_result(outcome)
