"""Reads that the event loop must not wait for: by a worker, and only so many at a time.

Flushes go to the same workers, and somebody waits for each of them: a hundred clients that read
what is not in the page cache must leave them room.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.core.runtime import Executor

T = TypeVar("T")

READS_MAX: Final = 2


class DiskReads:
    """All reads by workers of one node."""

    __slots__ = ("executor", "permits")

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        # For whoever has something to look at before and after the read.
        self.permits = asyncio.Semaphore(READS_MAX)

    async def run(self, call: Callable[[], T]) -> T:
        """Run it away from the loop, after those who asked before."""
        async with self.permits:
            return await self.executor.run(call)
