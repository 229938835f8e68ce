"""The event loop's own delay is noticed."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.node import event_loop_lag
from headrace.node.event_loop_lag import EventLoopLagMonitor


class Clock:
    """Shows a time by which every other look comes so much too late."""

    def __init__(self, late: float) -> None:
        self.seconds = 0.0
        self._late = late
        self._asked = False

    def __call__(self) -> float:
        if self._asked:
            self.seconds += event_loop_lag.INTERVAL_SECONDS + self._late
        self._asked = not self._asked
        return self.seconds


async def rounds(watch: EventLoopLagMonitor, enough: Callable[[], bool]) -> None:
    task = asyncio.get_running_loop().create_task(watch.run())
    async with asyncio.timeout(10):
        while not enough():
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("late", "told"), [(0.003, False), (1.5, True), (-0.1, False)])
async def test_delays_are_counted_and_long_ones_told(
    late: float, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop_lag, "INTERVAL_SECONDS", 0.001)
    looks: list[None] = []
    watch = EventLoopLagMonitor(Clock(late), on_sample=lambda: looks.append(None))
    await rounds(watch, lambda: len(looks) >= 3)
    assert watch.lag.count >= 3
    assert watch.lag.total == pytest.approx(max(late, 0) * watch.lag.count)
    assert ("the event loop was held up: duration_ms=1500" in caplog.text) is told
