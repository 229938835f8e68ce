"""Long work of one request, done a turn at a time: others are served between two turns."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from headrace.broker.context import Caller

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What one request may do in one piece.
TURN_SECONDS: Final = 0.01
# Requests that go on later; nobody else holds on to them.
_under_way: set[asyncio.Task[None]] = set()


async def in_turns(items: Iterable[T], now: Callable[[], float]) -> AsyncIterator[T]:
    """Each item; `now` counts seconds."""
    ends = now() + TURN_SECONDS
    for item in items:
        if now() > ends:
            await asyncio.sleep(0)
            ends = now() + TURN_SECONDS
        yield item


def go_on_later(caller: Caller, work: Coroutine[Any, Any, None]) -> None:
    """Finish a request after its handler has returned; those behind it wait for that."""
    caller.hold()
    task = asyncio.get_running_loop().create_task(work)
    _under_way.add(task)

    def done(task: asyncio.Task[None]) -> None:
        _under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("request failed, closing connection", exc_info=task.exception())
            caller.close()
        caller.go_on()

    task.add_done_callback(done)
