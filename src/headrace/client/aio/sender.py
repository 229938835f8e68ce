"""What runs behind a producer: keeps requests flowing, looks up leaders, tells who waits.

A step looks at everything at once and never waits; it runs soon after something has happened,
and when the core says that something is due. Only lookups wait, each in a task of its own.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.core.accumulator import CompletionCallback, RecordAccumulator
from headrace.client.core.errors import BufferFull, SenderFailed
from headrace.client.core.lookups import ensure_topics, partition_error
from headrace.client.core.planned_produce import PlannedProduce
from headrace.client.core.producer_identity import request_producer_identity
from headrace.client.core.settings import ProducerSettings
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.connection import ResponseFuture
from headrace.network.errors import ClientClosed
from headrace.protocol.message import Message

logger = logging.getLogger(__name__)

ROOM_PER_RECORD = 64

# A timer may fire this much before its time, as rounding and the clock's grain will have it;
# what is due then must count as due, or the step would run again and again until it is.
_EARLY_MS = 0.01


class Sender:
    """Drives a `RecordAccumulator` on an event loop; both faces' producers stand on it."""

    def __init__(
        self,
        requests: AsyncClusterRequests,
        settings: ProducerSettings,
        complete: CompletionCallback,
        *,
        lock: AbstractContextManager[object] | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self._requests = requests
        # Held around every use of the accumulator, to which a face's own threads may append.
        self._lock = nullcontext() if lock is None else lock
        self._on_progress = on_progress
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.accumulator = RecordAccumulator(requests.session, settings, complete)
        self.partition_counts: dict[str, int] = {}
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._identity_request: asyncio.Task[None] | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._idle_waiters: list[asyncio.Future[None]] = []

    def wake_up(self) -> None:
        """There is something to look at: new records, or an answer."""
        if self._scheduled is None and not self._is_stopped:
            self._scheduled = self._loop.call_soon(self._run_once)

    async def count_partitions(self, topic: str, partition: int | None) -> int:
        """How many partitions the topic has (it may be auto-created); checks the one given."""
        found = await self._requests.run(
            ensure_topics(self._requests.session, [topic], create=True)
        )
        state = found[topic]
        count = len(state.partitions)
        if partition is not None and not 0 <= partition < count:
            # The next call asks again: partitions may be added.
            self._requests.session.cluster.mark_stale([topic])
            raise partition_error(topic, partition, count)
        self.partition_counts[topic] = count
        return count

    def knows(self, partition: TopicPartition) -> bool:
        """Whether the partition is known to exist."""
        return 0 <= partition.partition < self.partition_counts.get(partition.topic, 0)

    def must_wait(self, size: int) -> bool:
        """Whether a record must wait for room, or for others that wait already."""
        return bool(self._room_waiters) or not self.accumulator.has_room(size)

    async def wait_for_room(self, size: int) -> None:
        """Return when `size` bytes fit the buffer, in the order of asking."""
        limit_ms = self._settings.block_ms_max
        try:
            async with asyncio.timeout(limit_ms / 1000):
                if not self.must_wait(size):
                    return
                room: asyncio.Future[None] = self._loop.create_future()
                self._room_waiters.append(room)
                self.wake_up()
                try:
                    await room
                    while not self.accumulator.has_room(size):
                        room = self._loop.create_future()
                        self._room_waiters.appendleft(room)
                        await room
                    # Let the next one look too: nothing else may happen for a while.
                    self._loop.call_soon(self._notify_waiters)
                finally:
                    if room in self._room_waiters:
                        self._room_waiters.remove(room)
        except TimeoutError:
            raise BufferFull(
                f"no room for {size} bytes within {limit_ms} ms: "
                f"{self.accumulator.buffered_bytes} of "
                f"{self._settings.buffer_bytes} bytes wait to be sent",
                hint="the brokers are slower than the sender; raise buffer_bytes or send less",
            ) from None

    async def flush(self) -> None:
        """Send what is buffered without waiting for linger; return when all is settled."""
        with self._lock:
            if self.accumulator.is_idle:
                return
            self.accumulator.begin_flush()
        done: asyncio.Future[None] = self._loop.create_future()
        self._idle_waiters.append(done)
        self.wake_up()
        try:
            await done
        finally:
            with self._lock:
                self.accumulator.end_flush()

    async def stop(self) -> None:
        """End everything; what is still queued fails."""
        self._is_stopped = True
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        for task in (self._identity_request, self._lookup):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._fail_all(ClientClosed("producer"))
        self._notify_waiters()

    def _fail_all(self, error: HeadraceError) -> None:
        with self._lock:
            self.accumulator.fail_all(error)

    def _run_once(self) -> None:
        self._scheduled = None
        try:
            self._drain()
        except Exception as error:
            # A fault of ours: whoever waits for an answer must not wait forever for it.
            self._fail_all(SenderFailed(f"the producer cannot go on: {error!r}"))
            self._notify_waiters()
            raise

    def _drain(self) -> None:
        accumulator, now_ms = self.accumulator, self._requests.now_ms() + _EARLY_MS
        with self._lock:
            accumulator.expire(now_ms)
            needs_identity = accumulator.needs_identity
            stale = accumulator.stale_topics(now_ms)
            calls = accumulator.drain(now_ms)
            due_ms = accumulator.next_due_ms(now_ms)
        if needs_identity and _is_over(self._identity_request):
            self._identity_request = self._loop.create_task(self._request_identity())
        if stale and _is_over(self._lookup):
            self._lookup = self._loop.create_task(self._look_up())
        for call in calls:
            self._requests.submit(call.send).add_done_callback(partial(self._on_response, call))
        self._notify_waiters()
        self._arm(due_ms)

    def _arm(self, due_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms != float("inf") and not self._is_stopped:
            self._timer = self._loop.call_at(due_ms / 1000, self.wake_up)

    async def _request_identity(self) -> None:
        try:
            self.accumulator.identity = await self._requests.run(
                request_producer_identity(self._requests.session)
            )
        except HeadraceError as error:
            self._fail_all(error)
        self.wake_up()

    async def _look_up(self) -> None:
        """Find leaders anew. Failing, the batches wait on: their delivery timeout decides."""
        session = self._requests.session
        stale = self._stale_topics()
        session.cluster.mark_stale(stale)
        try:
            found = await self._requests.run(ensure_topics(session, stale, create=True))
        except HeadraceError:
            found = {}
        for topic, state in found.items():
            self.partition_counts[topic] = len(state.partitions)
        if self._stale_topics():
            await asyncio.sleep(session.backoff.delay_ms(1) / 1000)
        self.wake_up()

    def _stale_topics(self) -> set[str]:
        with self._lock:
            return self.accumulator.stale_topics(self._requests.now_ms())

    def _on_response(self, call: PlannedProduce, response: ResponseFuture) -> None:
        outcome: Message | HeadraceError | None
        if response.cancelled():
            outcome = ClientClosed("producer")
        else:
            failure = response.exception()
            if failure is not None and not isinstance(failure, HeadraceError):
                logger.error("a request failed", exc_info=failure)
                failure = SenderFailed(f"a request failed: {failure!r}")
            outcome = failure or response.result()
        with self._lock:
            self.accumulator.on_response(call, outcome, self._requests.now_ms())
        self._notify_waiters()
        self.wake_up()

    def _notify_waiters(self) -> None:
        if self._on_progress is not None:
            self._on_progress()
        if self._room_waiters and self.accumulator.has_room(ROOM_PER_RECORD):
            room = self._room_waiters.popleft()
            if not room.done():
                room.set_result(None)
        if self._idle_waiters and self.accumulator.is_idle:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
