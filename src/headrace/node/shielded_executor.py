"""Calls in workers that are seen to their end, also by somebody who was told to stop.

A thread cannot be called off. Whoever stops waiting for it would leave a checkpoint or the swap
of a segment running while the directory is closed, and perhaps opened by the next process.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.core.runtime import Executor

T = TypeVar("T")


class ShieldedExecutor:
    """An executor whose `run`, when it is cancelled, ends only after the call has."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, call: Callable[[], T]) -> T:
        running = asyncio.ensure_future(self._executor.run(call))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # it was seen; nobody is left to be told
            raise

    async def wait_until_idle(self) -> None:
        """Return when no call is under way, whoever has asked for it."""
        while self._running:
            await asyncio.wait(tuple(self._running))
