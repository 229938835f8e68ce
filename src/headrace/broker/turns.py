"""Long work of one request, done a turn at a time: others are served between two turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

# What one request may do in one piece.
TURN_SECONDS: Final = 0.01


async def in_turns(items: Iterable[T], now: Callable[[], float]) -> AsyncIterator[T]:
    """Each item; `now` counts seconds."""
    ends = now() + TURN_SECONDS
    for item in items:
        if now() > ends:
            await asyncio.sleep(0)
            ends = now() + TURN_SECONDS
        yield item
