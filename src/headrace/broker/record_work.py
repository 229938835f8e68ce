"""Work on single records: a little of it on the event loop, the rest in a worker.

Most batches are never looked into. Where one must be (a compacted topic, doubtful timestamps,
another codec), small ones are done at once, as long as no more than
`BYTES_PER_ITERATION` come together in one turn of the loop, whoever sends them. What is above that
goes to a worker, one call at a time: Python threads share one lock, and flushes must find a free
worker at any time.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.core.runtime import Executor
from headrace.protocol.records.budget import OverBudget

T = TypeVar("T")

# Uncompressed bytes. The worst that a client can make of them (records of seven bytes, headers of
# two) takes some 20 ms; a producer's usual batch has 16 KiB.
BYTES_PER_ITERATION: Final = 128 * 1024


class RecordWork:
    """A budget that is full again with each turn of the loop, and the way to the worker."""

    __slots__ = ("_executor", "_is_spent", "_one_at_a_time", "left")

    def __init__(self, executor: Executor) -> None:
        self.left = BYTES_PER_ITERATION
        self._is_spent = False
        self._executor = executor
        self._one_at_a_time = asyncio.Lock()

    def spend(self, count: int) -> None:
        if not self._is_spent:
            self._is_spent = True
            # Behind the frames that are at hand now: a connection may have sent hundreds.
            asyncio.get_running_loop().call_soon(self._refill)
        if count > self.left:
            raise OverBudget
        self.left -= count

    def _refill(self) -> None:
        self.left = BYTES_PER_ITERATION
        self._is_spent = False

    async def in_worker(self, call: Callable[[], T]) -> T:
        """Run it away from the loop, after those who asked before."""
        async with self._one_at_a_time:
            return await self._executor.run(call)
