"""Long work of several at once: together it has one turn, and everybody comes to an end."""

import asyncio
from collections import Counter

import pytest

from headrace.broker import time_slice
from headrace.broker.time_slice import TimeSlice, in_time_slices


async def test_all_that_is_long_shares_the_time_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    seconds = 0.0

    def now() -> float:
        nonlocal seconds
        seconds += 1
        return seconds

    turn = TimeSlice(now)
    done: Counter[int] = Counter()
    most = 0

    async def work(number: int) -> None:
        async for _ in in_time_slices(range(5), turn):
            done[number] += 1

    async def watch() -> None:
        nonlocal most
        while True:
            before = done.total()
            await asyncio.sleep(0)
            most = max(most, done.total() - before)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*map(work, range(10)))
    watching.cancel()
    assert done == dict.fromkeys(range(10), 5)
    assert most == 1
