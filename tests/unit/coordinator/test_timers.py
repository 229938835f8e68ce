"""One timer for all shards: it wakes for the earliest deadline and for nothing else."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.coordinator.timers import RETRY_MS, Timers
from tests.simulation.loop import VirtualLoop

TimerKey = tuple[int, str]
A: TimerKey = (0, "a")
B: TimerKey = (1, "b")


class Watched:
    """Timers on a loop whose time is virtual, and every look that was taken."""

    def __init__(self, due: Callable[[TimerKey, int], int | None] = lambda _, __: None) -> None:
        self.loop = VirtualLoop()
        self.looks: list[tuple[int, TimerKey]] = []
        self._due = due
        self.timers: Timers[TimerKey] = Timers(self.now_ms, self.look)

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def look(self, key: TimerKey) -> None:
        self.looks.append((self.now_ms(), key))
        self.timers.schedule(key, self._due(key, self.now_ms()))

    def run(self, start: Callable[[], None], ms: int = 1_000) -> None:
        async def live() -> None:
            start()
            await asyncio.sleep(ms / 1000)
            self.timers.close()

        self.loop.run(live())
        self.loop.close()


def test_each_key_is_looked_at_when_its_time_has_come() -> None:
    watched = Watched()

    def start() -> None:
        watched.timers.schedule(A, 300)
        watched.timers.schedule(B, 200)

    watched.run(start)
    assert watched.looks == [(200, B), (300, A)]


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    watched = Watched()

    def start() -> None:
        watched.timers.schedule(A, 300)
        watched.timers.schedule(A, 100)
        watched.timers.schedule(A, 500)

    watched.run(start)
    assert watched.looks == [(100, A)]


def test_a_deadline_that_moved_is_found_out_when_the_old_one_comes() -> None:
    moved = {A: 450}
    watched = Watched(lambda key, now_ms: moved[key] if now_ms < moved[key] else None)
    watched.run(lambda: watched.timers.schedule(A, 100))
    assert watched.looks == [(100, A), (450, A)]


def test_whoever_names_the_past_is_looked_at_next_and_does_not_spin() -> None:
    watched = Watched(lambda _, now_ms: now_ms - 5 if now_ms < 103 else None)
    watched.run(lambda: watched.timers.schedule(A, 100))
    assert watched.looks == [(100, A), (101, A), (102, A), (103, A)]


def test_one_key_that_raises_leaves_the_others_their_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def due(key: TimerKey, _: int) -> int | None:
        if key == A:
            raise ZeroDivisionError("a fault of one group")
        return None

    watched = Watched(due)

    def start() -> None:
        watched.timers.schedule(A, 100)
        watched.timers.schedule(B, 100)
        watched.timers.schedule((2, "c"), 200)

    watched.run(start)
    assert watched.looks == [(100, A), (100, B), (200, (2, "c"))]
    assert "a fault of one group" in caplog.text


def test_a_key_that_raised_is_looked_at_again_after_a_while() -> None:
    def due(_: TimerKey, now_ms: int) -> int | None:
        if now_ms < 500:
            raise ZeroDivisionError
        return None

    watched = Watched(due)
    watched.run(lambda: watched.timers.schedule(A, 100), ms=RETRY_MS + 1_000)
    assert watched.looks == [(100, A), (100 + RETRY_MS, A)]


def test_nothing_is_looked_at_after_the_end() -> None:
    watched = Watched()

    def start() -> None:
        watched.timers.schedule(A, 100)
        watched.timers.close()
        watched.timers.schedule(B, 50)

    watched.run(start)
    assert watched.looks == []
