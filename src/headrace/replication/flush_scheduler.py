"""When each partition is flushed, and who is called.

    append, nobody waits ──> later ──(time or bytes)──┐
    somebody waits ───────────────────────────────────┴──> queue ──> begin ──> sync ──> end

A flush begins and ends on the event loop; between them a worker syncs a fixed list of files of one
partition, and a few workers do so at a time. It covers everything appended before it began, so its
cost is shared by all who wait there; and a partition is called as soon as it is on disk, whatever
else is in the queue.

What nobody waits for is flushed after `FLUSH_MS_MAX` or `FLUSH_BYTES_MAX`. acks=1 promises the
page cache and no more: a power cut may take so much of it, the death of the process takes nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from headrace.core.errors import ErrorCode, StorageError, StorageUnavailable
from headrace.core.ids import Offset
from headrace.core.metrics import Histogram
from headrace.core.runtime import Executor
from headrace.core.shared_calls import call_each
from headrace.log.partition_log import PartitionLog
from headrace.replication.flush_queue import FlushQueue
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

FLUSH_MS_MAX = 500
# Per partition.
FLUSH_BYTES_MAX = 32 * 1024 * 1024
# Flushes under way at a time: file systems commit together what comes together.
WORKERS = 4
# So many of them at most for what nobody waits for: a large file takes long.
WORKERS_NOT_AWAITED = 2
# The disk could not be asked (no descriptor, no memory): ask again after this long.
RETRY_SECONDS = 0.1
# A line in the log at most this often while flushes are put off.
REPORT_SECONDS = 1.0


class FlushScheduler:
    """Owns the flushes of one node's partitions; all but the sync itself is on the event loop."""

    def __init__(self, executor: Executor, seconds: Callable[[], float] = float) -> None:
        """`seconds` is the clock that flushes are measured by; without one they take no time."""
        self._executor = executor
        self._seconds = seconds
        self.flush_times = Histogram()
        self._queue: FlushQueue[Partition] = FlushQueue()
        # Nobody waits and it is not yet time, with the time of the first append; oldest first.
        self._delayed: dict[Partition, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: set[Partition] = set()
        self._not_awaited_in_flight = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._retries: dict[Partition, asyncio.TimerHandle] = {}
        self._next_report = 0.0
        self._closed = False

    def schedule(self, partition: Partition, requester: object | None) -> None:
        """Flush what was appended: at once if `requester` waits for it, in time if nobody does."""
        if partition in self._in_flight or partition in self._retries:
            return  # looked at anew when that flush has ended
        if requester is not None or partition.unflushed_bytes >= FLUSH_BYTES_MAX:
            self._enqueue(partition, requester)
        elif partition not in self._delayed:
            loop = asyncio.get_running_loop()
            self._delayed[partition] = loop.time()
            if self._timer is None and not self._closed:
                self._timer = loop.call_later(FLUSH_MS_MAX / 1000, self._flush_delayed)

    def schedule_now(self, partition: Partition) -> None:
        """Flush it soon, though nobody waits."""
        if partition not in self._in_flight and partition not in self._retries:
            self._enqueue(partition, None)

    async def drain(self) -> None:
        """Flush whatever is not flushed, and return when that is done or was tried."""
        delayed, self._delayed = self._delayed, {}
        for partition in delayed:
            self.schedule_now(partition)
        while self._workers:
            await asyncio.wait(tuple(self._workers))

    async def close(self) -> None:
        """Finish the flushes that were asked for, take no more."""
        await self.drain()
        self.kill()

    def kill(self) -> None:
        """Begin no flush any more."""
        self._closed = True
        self._queue = FlushQueue()
        self._delayed.clear()
        for timer in (*self._retries.values(), self._timer):
            if timer is not None:
                timer.cancel()

    def _flush_delayed(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - FLUSH_MS_MAX / 1000
        while self._delayed:
            partition, since = next(iter(self._delayed.items()))
            if since > oldest:
                self._timer = loop.call_at(since + FLUSH_MS_MAX / 1000, self._flush_delayed)
                return
            del self._delayed[partition]
            self.schedule_now(partition)

    def _enqueue(self, partition: Partition, requester: object | None) -> None:
        self._queue.add(partition, requester)
        if len(self._workers) < min(WORKERS, len(self._queue) + len(self._in_flight)):
            self._workers.add(asyncio.get_running_loop().create_task(self._work()))

    async def _work(self) -> None:
        try:
            await self._flush_in_turn()
        finally:
            # Not by a callback of the task: what is marked before that ran would get no worker.
            self._workers.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _flush_in_turn(self) -> None:
        while not self._closed:
            busy = self._not_awaited_in_flight >= WORKERS_NOT_AWAITED
            taken = self._queue.take(only_awaited=busy)
            if taken is None:
                return
            partition, awaited = taken
            self._delayed.pop(partition, None)
            self._in_flight.add(partition)
            self._not_awaited_in_flight += not awaited
            appended_bytes = partition.appended_bytes
            began = self._seconds()
            outcome: Offset | Exception
            try:
                outcome = await self._flush(partition.log)
            except Exception as error:  # whatever it was: its waiters must be called
                outcome = error
            finally:
                self._in_flight.discard(partition)
                self._not_awaited_in_flight -= not awaited
            self.flush_times.observe(self._seconds() - began)
            report = partial(self._report, appended_bytes=appended_bytes, outcome=outcome)
            call_each(logger, "a partition that was flushed", (partition,), report)

    async def _flush(self, log: PartitionLog) -> Offset:
        """Only the syncs run in a worker: what they are worth may depend on what happens meanwhile
        on the event loop."""
        job = log.begin_flush()
        failure: OSError | None = None
        try:
            await self._executor.run(job.sync)
        except OSError as error:
            failure = error
        return log.end_flush(job, failure)

    def _report(
        self, partition: Partition, appended_bytes: int, outcome: Offset | Exception
    ) -> None:
        if isinstance(outcome, StorageUnavailable):
            self._schedule_retry(partition, outcome)
        elif isinstance(outcome, Exception):
            if not partition.closed:
                logger.error(
                    "flush failed: partition=%s error=%s",
                    partition.id,
                    outcome,
                    exc_info=None if isinstance(outcome, StorageError) else outcome,
                )
            partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            partition.flushed(outcome, appended_bytes)
            if not partition.is_flushed:  # appended to meanwhile
                self.schedule(partition, partition.flush_requester)

    def _schedule_retry(self, partition: Partition, error: StorageUnavailable) -> None:
        """Nothing is lost and nothing is promised: who waits goes on waiting, for as long as it
        wants to, and the partition stays as it is."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_report:
            # One line for all: thousands may be put off together, again and again.
            self._next_report = loop.time() + REPORT_SECONDS
            logger.warning(
                "flushes put off: partition=%s others=%d error=%s retry_ms=%d",
                partition.id,
                len(self._retries),
                error,
                RETRY_SECONDS * 1000,
            )
        self._retries[partition] = loop.call_later(RETRY_SECONDS, self._retry, partition)

    def _retry(self, partition: Partition) -> None:
        del self._retries[partition]
        self._enqueue(partition, partition.flush_requester)
