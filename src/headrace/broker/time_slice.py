"""Long work, done a turn at a time: others are served between two turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

# What all long work together may do in one turn of the loop.
SLICE_SECONDS: Final = 0.005


class TimeSlice:
    """The time that long work has in this turn of the loop, whoever does it."""

    __slots__ = ("_ends", "_has_begun", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` counts seconds."""
        self._now = now
        self._has_begun = False
        self._ends = 0.0

    def is_over(self) -> bool:
        """To be asked before each piece of work; the first one in a turn is always free to go."""
        if not self._has_begun:
            self._has_begun = True
            self._ends = self._now() + SLICE_SECONDS
            # Ahead of whoever waits for the next turn because this one is over.
            asyncio.get_running_loop().call_soon(self._end)
            return False
        return self._now() > self._ends

    def _end(self) -> None:
        self._has_begun = False


async def in_time_slices(items: Iterable[T], time_slice: TimeSlice) -> AsyncIterator[T]:
    """Each item, when there is time for it."""
    for item in items:
        while time_slice.is_over():
            await asyncio.sleep(0)
        yield item
