"""One flush for everything appended meanwhile.

Appends mark their partition; a round flushes every marked partition in a worker while further
appends go on and collect for the next round. So the cost of a flush is shared by all who wait
for it, and nobody waits for more than the round under way and the next.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from headrace.core.errors import ErrorCode, StorageError
from headrace.core.ids import Offset
from headrace.core.metrics import Histogram
from headrace.core.seams import Executor
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

FlushResult = tuple[Partition, int, Offset | Exception]


class GroupCommit:
    """Owns the flush rounds of one node."""

    def __init__(self, executor: Executor, seconds: Callable[[], float] = float) -> None:
        """`seconds` is the clock that rounds are measured by; without one they take no time."""
        self._executor = executor
        self._seconds = seconds
        self.round_times = Histogram()
        self._dirty: dict[Partition, None] = {}
        self._rounds: asyncio.Task[None] | None = None
        self._closed = False

    def mark(self, partition: Partition) -> None:
        """Flush this partition in the next round."""
        self._dirty[partition] = None
        if self._rounds is None and not self._closed:
            self._rounds = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._dirty:
                marked = [(partition, partition.appended_bytes) for partition in self._dirty]
                self._dirty.clear()
                began = self._seconds()
                results = await self._executor.run(partial(_flush_all, marked))
                self.round_times.observe(self._seconds() - began)
                for result in results:
                    _tell(result)
        finally:
            self._rounds = None

    async def settle(self) -> None:
        """Return when nothing waits for the disk."""
        if self._rounds is not None:
            await self._rounds

    async def close(self) -> None:
        """Finish the rounds that were asked for, take no more."""
        self._closed = True
        await self.settle()


def _flush_all(marked: list[tuple[Partition, int]]) -> list[FlushResult]:
    """Runs in a worker thread; touches nothing of a partition but its log's flush."""
    results: list[FlushResult] = []
    for partition, appended_bytes in marked:
        try:
            results.append((partition, appended_bytes, partition.log.flush()))
        except Exception as error:  # whatever it was: its waiters must hear of it, the others not
            results.append((partition, appended_bytes, error))
    return results


def _tell(result: FlushResult) -> None:
    partition, appended_bytes, outcome = result
    if isinstance(outcome, Exception) and partition.retired:
        return  # deleted meanwhile: whoever waited has been told
    if isinstance(outcome, Exception):
        logger.error(
            "flush failed: partition=%s error=%s",
            partition.id,
            outcome,
            exc_info=None if isinstance(outcome, StorageError) else outcome,
        )
        partition.give_up(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        partition.flushed(outcome, appended_bytes)
