"""An event loop in virtual time: no sockets, no threads, no waiting; one seed, one history.

When nothing is ready, time jumps to the next timer. Every callback runs in a context that says
which simulated process it belongs to; the callbacks of a dead process are dropped, so nothing
of it runs any more: no `finally`, no `connection_lost`, just as after SIGKILL.
"""

import asyncio
import heapq
import inspect
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tests.simulation.processes import Process, ProcessDied, is_alive

if TYPE_CHECKING:
    from tests.simulation.network import SimulatedNetwork

T = TypeVar("T")

EPOCH_MS = 1_750_000_000_000
TICK_SECONDS = 1e-6
# A history that goes round without end is a bug of the product or of the test.
STEPS_MAX = 20_000_000


class Deadlock(RuntimeError):
    """No callback is ready and no timer is set: whoever waits would wait for ever."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order of virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._ready: Any
        self._scheduled: list[Any]
        self._steps = 0
        self.network: SimulatedNetwork | None = None
        self.failures: list[dict[str, Any]] = []
        # All of them, so that none is collected, and its `finally` run, at a time of chance.
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_exception_handler(lambda _loop, context: self._note(context))

    def time(self) -> float:
        return self._now

    def _note(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would only log, unless a kill is what caused it."""
        died = isinstance(context.get("exception"), ProcessDied)
        if not died and "was destroyed but it is pending" not in str(context.get("message")):
            self.failures.append(context)

    def _run_once(self) -> None:
        timers, ready = self._scheduled, self._ready
        # A round takes some time, however short: a deadline in rounded milliseconds would
        # otherwise stay a hair away for ever.
        self._now += TICK_SECONDS
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]  # of the base class
            if not timers:
                raise Deadlock
            self._now = max(self._now, timers[0]._when)
        while timers and timers[0]._when <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not is_alive(handle._context):
                _drop(handle)
            elif not handle._cancelled:
                self._steps += 1
                assert self._steps < STEPS_MAX, "the simulation does not come to an end"
                handle._run()

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _write_to_self(self) -> None:
        """Nobody waits in a selector that would have to be woken."""

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        self._tasks.append(task)
        return task

    def close(self) -> None:
        """Unwind what dead processes left hanging; nothing of it can reach the disk any more."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # of asyncio
                coroutine = task.get_coro()
                with suppress(BaseException):
                    assert inspect.iscoroutine(coroutine)
                    coroutine.close()
        self._tasks.clear()
        super().close()

    # Where a real loop would touch the network or a thread.

    async def create_server(  # type: ignore[override]  # only what the product uses
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> asyncio.AbstractServer:
        assert self.network is not None
        return self.network.listen(factory, host, port)

    async def create_connection(  # type: ignore[override]  # only what the product uses
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.network is not None
        return await self.network.connect(factory, host, port)

    def run_in_executor(self, *_: object) -> Any:
        raise AssertionError("blocking calls go through the executor that was injected")

    # For worlds.

    def start(self, process: Process, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that belongs to the process."""
        return self.create_task(work, context=process.context())

    def run(self, work: Awaitable[T]) -> T:
        """Run until the work is done; virtual time passes, real time hardly."""
        return self.run_until_complete(work)


def _drop(handle: Any) -> None:
    """Forget a callback of a dead process; a coroutine that never began must not complain."""
    task = getattr(handle._callback, "__self__", None)
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    if (
        inspect.iscoroutine(coroutine)
        and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    ):
        coroutine.close()


class SimulatedClock:
    """Implements `core.seams.Clock` in virtual time; the wall clock may be set wrong."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


class SeededRandomness:
    """Implements `core.seams.Randomness` from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def uuid(self) -> UUID:
        while True:
            fresh = UUID(int=self._random.getrandbits(128), version=4)
            if fresh.bytes[0] >> 2 != 62:  # would begin with a dash in base 64
                return fresh

    def random(self) -> float:
        return self._random.random()


class SimulatedExecutor:
    """Implements `core.seams.Executor`: a call happens some time later, its result later still.

    So appends overlap with flushes on both sides: after the request for a flush and before it
    (covered by it though not promised), and after it and before its result (not covered).
    """

    def __init__(self, loop: VirtualLoop, random: Random, delay_seconds_max: float) -> None:
        self._loop = loop
        self._random = random
        self.delay_seconds_max = delay_seconds_max

    async def run(self, call: Callable[[], T]) -> T:
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_later(self._delay(), self._call, call, outcome)
        return await outcome

    def _call(self, call: Callable[[], T], outcome: "asyncio.Future[T]") -> None:
        try:
            result = call()
        except Exception as failure:
            self._loop.call_later(self._delay(), _fail, outcome, failure)
        else:
            self._loop.call_later(self._delay(), _succeed, outcome, result)

    def _delay(self) -> float:
        return self._random.random() * self.delay_seconds_max


def _succeed(outcome: "asyncio.Future[T]", result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: "asyncio.Future[T]", failure: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(failure)
