"""An event loop in virtual time: no sockets, no threads, no waiting; one seed, one history.

When nothing is ready, time jumps to the next timer. Every callback runs in a context that says
which simulated process it belongs to; the callbacks of a dead process are dropped, so nothing
of it runs any more: no `finally`, no `connection_lost`, just as after SIGKILL.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tests.simulation.processes import CURRENT_PROCESS, Process, ProcessDied

if TYPE_CHECKING:
    from tests.simulation.network import SimulatedNetwork

T = TypeVar("T")

EPOCH_MS = 1_750_000_000_000
TICK_SECONDS = 1e-6
# A history that goes round without end is a bug of the product or of the test.
STEPS_MAX = 20_000_000
TIMERS_SWEPT_MIN = 64
TASKS_KEPT_MIN = 1_000


class Deadlock(RuntimeError):
    """No callback is ready and no timer is set: whoever waits would wait for ever."""


class VirtualHandle:
    """One callback to come; lighter than asyncio's, which millions of seeds would feel."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled


class VirtualTimer(VirtualHandle):
    """A callback at a time."""

    __slots__ = ("_loop", "_when")

    def __init__(
        self,
        loop: "VirtualLoop",
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        super().__init__(callback, args, context)
        self._loop = loop
        self._when = when

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        if not self.is_cancelled:
            super().cancel()
            self._loop.timer_cancelled()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order of virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._ready: deque[VirtualHandle] = deque()
        # By time, then in the order in which they were set.
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._timers_set = 0
        self._timers_cancelled = 0  # of those in the heap; about, since some were due already
        self._steps = 0
        self.network: SimulatedNetwork | None = None
        self.failures: list[dict[str, Any]] = []
        # All that are not done, so that none is collected, and its `finally` run, at a time of
        # chance: what belongs to a dead process is never done.
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = TASKS_KEPT_MIN
        self.set_exception_handler(lambda _loop, context: self._note(context))

    def time(self) -> float:
        return self._now

    def _note(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would only log, unless a kill is what caused it."""
        died = isinstance(context.get("exception"), ProcessDied)
        if not died and "was destroyed but it is pending" not in str(context.get("message")):
            self.failures.append(context)

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        # A round takes some time, however short: a deadline in rounded milliseconds would
        # otherwise stay a hair away for ever.
        self._now += TICK_SECONDS
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]  # of the base class
            if not timers:
                raise Deadlock
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        self._steps += len(ready)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            context = handle.context
            process = context.get(CURRENT_PROCESS)
            if process is not None and not process.alive:
                _drop(handle)
                continue
            try:
                context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler(
                    {"message": f"in callback {handle.callback}", "exception": error}
                )
        assert self._steps < STEPS_MAX, "the simulation does not come to an end"

    def call_soon(  # type: ignore[override]  # a handle of our own
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        self._check_closed()  # type: ignore[attr-defined]  # of the base class
        handle = VirtualHandle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # a handle of our own
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> VirtualTimer:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # a handle of our own
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> VirtualTimer:
        self._check_closed()  # type: ignore[attr-defined]  # of the base class
        timer = VirtualTimer(self, when, callback, args, context)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def timer_cancelled(self) -> None:
        """Once most are cancelled, the others are kept; timeouts seldom live to see their time."""
        self._timers_cancelled += 1
        timers = self._timers
        if self._timers_cancelled * 2 > len(timers) and len(timers) > TIMERS_SWEPT_MIN:
            timers[:] = [entry for entry in timers if not entry[2].is_cancelled]
            heapify(timers)
            self._timers_cancelled = 0

    def _write_to_self(self) -> None:
        """Nobody waits in a selector that would have to be woken."""

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._tasks_max:
            tasks[:] = [each for each in tasks if not each.done()]
            self._tasks_max = max(TASKS_KEPT_MIN, 2 * len(tasks))
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


def _drop(handle: VirtualHandle) -> None:
    """Forget a callback of a dead process; a coroutine that never began must not complain."""
    task = getattr(handle.callback, "__self__", None)
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    if (
        inspect.iscoroutine(coroutine)
        and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    ):
        coroutine.close()


class SimulatedClock:
    """Implements `core.runtime.Clock` in virtual time, for one machine.

    Its wall clock may be set wrong (`skew_ms`, at any time), and both clocks may run fast or slow.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self._rate = 1.0
        # Loop's time and this clock's when the rate was last changed.
        self._since = 0.0, 0.0

    def drift(self, rate: float) -> None:
        """From now on it runs so many times as fast as time does."""
        self._since = self._loop.time(), self.monotonic_ms()
        self._rate = rate

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        at, then = self._since
        return then + (self._loop.time() - at) * 1000 * self._rate


class SeededRandomness:
    """Implements `core.runtime.Randomness` from a seed."""

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
    """Implements `core.runtime.Executor`: a call happens some time later, its result later still.

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
