"""Reads that have to wait for the disk: by workers, a few at a time."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.core.seams import Executor

T = TypeVar("T")

# Flushes, which producers wait for, must find a free worker however many read cold records.
READS_AT_ONCE: Final = 2


class DiskReads:
    """An executor for all requests and answers of a node: first come, first served."""

    __slots__ = ("_executor", "_free")

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._free = asyncio.Semaphore(READS_AT_ONCE)

    async def run(self, call: Callable[[], T]) -> T:
        async with self._free:
            return await self._executor.run(call)
