"""What a broker does without being asked: checkpoints, retention, expiry, timed flushes.

Each task has its own rhythm, and whatever waits for the disk runs in a worker. A task that fails
is logged and tried again at its next turn: none may take the broker down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from headrace.core.config_keys import unless_negative
from headrace.core.errors import HeadraceError
from headrace.core.runtime import Clock, Executor
from headrace.core.shared_calls import call_each
from headrace.node.log_cleaner import LogCleaner
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

# No period is shorter, whatever the configuration says: a task must not keep a core busy.
PERIOD_SECONDS_MIN = 0.01
# However long the interval, a crash leaves at most about this much to check at the next start.
CHECKPOINT_BYTES_MAX = 256 * 1024 * 1024
# How often the bytes are looked at between two timed checkpoints.
CHECKPOINT_POLL_SECONDS = 0.5
# The pause of a task that cannot even say how long it should be.
RETRY_SECONDS = 5.0
# How often a new partition that could not be opened is tried again.
OPEN_RETRY_SECONDS = 5.0
# How often flushes by age are looked for, at the least.
FLUSH_POLL_SECONDS = 1.0


class LogMaintenanceCounts:
    """What the tasks have done since the start, for the metrics."""

    __slots__ = ("deleted_segments", "failures")

    def __init__(self) -> None:
        self.deleted_segments = 0
        self.failures = 0


class LogMaintenance:
    def __init__(
        self,
        replicas: ReplicaManager,
        cleaner: LogCleaner,
        clock: Clock,
        executor: Executor,
        flush: Callable[[Partition], None],
    ) -> None:
        """`flush` has a partition flushed that nobody waits for."""
        self._replicas = replicas
        self._cleaner = cleaner
        self._clock = clock
        self._executor = executor
        self._flush = flush
        self.counts = LogMaintenanceCounts()
        self._changed = asyncio.Event()

    def config_changed(self) -> None:
        """The broker's configuration is another one: pauses under way follow it."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._checkpoints())
            tasks.create_task(self._repeat(self._retention_seconds, self._apply_retention))
            tasks.create_task(
                self._repeat(
                    self._high_watermark_seconds, self._replicas.checkpoint_high_watermarks
                )
            )
            tasks.create_task(self._repeat(self._cleaner_seconds, self._cleaner.clean_all))
            tasks.create_task(self._repeat(self._flush_seconds, self._flush_overdue))
            tasks.create_task(
                self._repeat(lambda: OPEN_RETRY_SECONDS, self._replicas.retry_never_opened)
            )

    async def _repeat(
        self, seconds: Callable[[], float], task: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await self._pause(seconds)
            except Exception as error:
                # One task that ended would end the others with it.
                self._report(task.__name__, error)
                await asyncio.sleep(RETRY_SECONDS)
            try:
                await task()
            except Exception as error:
                self._report(task.__name__, error)

    async def _pause(self, seconds: Callable[[], float]) -> None:
        """Wait for as long as the configuration says; if it says otherwise meanwhile, for that
        long since the pause began."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + max(PERIOD_SECONDS_MIN, seconds()) - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _report(self, task: str, error: Exception) -> None:
        """A failing disk is told in a line; anything else is a mistake of ours and shown whole."""
        self.counts.failures += 1
        expected = isinstance(error, HeadraceError | OSError)
        logger.error(
            "log maintenance failed, will try again: task=%s error=%s",
            task,
            error,
            exc_info=None if expected else error,
        )

    # Checkpoints

    async def _checkpoints(self) -> None:
        """Checkpoint every few seconds, and sooner when much has been written."""
        loop = asyncio.get_running_loop()
        checkpointed = loop.time()
        while True:
            try:
                await self._pause(lambda: min(CHECKPOINT_POLL_SECONDS, self._checkpoint_seconds()))
                written = self._replicas.directory.bytes_since_checkpoint
                due = loop.time() - checkpointed >= self._checkpoint_seconds()
                if not due and written < CHECKPOINT_BYTES_MAX:
                    continue
                if written:
                    await self._executor.run(self._replicas.directory.checkpoint)
            except Exception as error:
                self._report("checkpoint", error)
            checkpointed = loop.time()

    def _checkpoint_seconds(self) -> float:
        return self._replicas.config.log_flush_offset_checkpoint_interval_ms / 1000

    def _high_watermark_seconds(self) -> float:
        return self._replicas.config.replica_high_watermark_checkpoint_interval_ms / 1000

    # Retention

    def _retention_seconds(self) -> float:
        return self._replicas.config.log_retention_check_interval_ms / 1000

    async def _apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        deleted = False
        for partition in list(self._replicas):
            if partition.closed:
                continue
            gone = await self._executor.run(
                partial(_delete_expired, partition, now_ms, self._clock.monotonic_ms())
            )
            for path, reason in gone:
                self.counts.deleted_segments += 1
                logger.info(
                    "segment deleted: partition=%s path=%s reason=%s", partition.id, path, reason
                )
                deleted = True
        directory = self._replicas.directory
        # First what makes room: on a full disk the checkpoint needs it.
        await self._executor.run(partial(directory.remove_deleted, self._clock.monotonic_ms()))
        if deleted:
            await self._executor.run(directory.checkpoint)

    def _cleaner_seconds(self) -> float:
        return self._replicas.config.log_cleaner_backoff_ms / 1000

    # Flushes by count and age as `flush.messages` and `flush.ms` ask for them

    def _flush_seconds(self) -> float:
        interval_ms = unless_negative(self._replicas.config.log_flush_scheduler_interval_ms)
        # A topic may ask for a shorter time than the broker.
        return (
            FLUSH_POLL_SECONDS
            if interval_ms is None
            else min(FLUSH_POLL_SECONDS, interval_ms / 1000)
        )

    async def _flush_overdue(self) -> None:
        now_ms = self._clock.monotonic_ms()

        def flush_if_due(partition: Partition) -> None:
            # One whose disk has failed says so to its writers; the others go on.
            if partition.log.failure is None and partition.log.flush_due(now_ms):
                self._flush(partition)

        call_each(logger, "a flush in time", tuple(self._replicas), flush_if_due)


def _delete_expired(
    partition: Partition, now_ms: int, monotonic_ms: float
) -> list[tuple[str, str]]:
    """Path and reason per segment deleted; a partition that fails does not hold up the others."""
    try:
        deleted = partition.log.apply_retention(now_ms, partition.high_watermark)
        partition.log.expire_producers(monotonic_ms)
        return deleted
    except Exception as error:  # whatever it was: the other partitions have their turn
        if not partition.closed:
            logger.error(
                "retention failed, will try again: partition=%s error=%s",
                partition.id,
                error,
                exc_info=None if isinstance(error, HeadraceError) else error,
            )
        return []
