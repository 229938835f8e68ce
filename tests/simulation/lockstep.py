"""Workers that run in lockstep with the virtual loop: overlap without chance.

A call runs in a greenlet, with a stack of its own as a thread has one, but only while the loop
stands still. In the middle of every
sync the worker parks and the loop goes on for a while of virtual time; so appends, rolls and
crashes fall into the middle of a flush, and the same seed gives the same interleaving every
time. Calls wait for each other, because workers may hold locks of their own across a sync. The
loop must never wait for such a lock: that stops the whole simulation, as appends must go on.
A worker of a dead process is unwound without touching anything.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import TypeVar

from greenlet import getcurrent, greenlet

from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.loop import VirtualLoop
from tests.simulation.processes import ProcessDied

T = TypeVar("T")


class _Worker:
    """One call; takes turns with the loop, which is where `step` is called."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._stack = greenlet(work)
        self._began = False
        self.finished = False
        self.killed = False

    def step(self) -> None:
        """On the loop's side: let the worker run until it parks or ends."""
        if self.killed and not self._began:
            self.finished = True
            return
        self._began = True
        self._stack.parent = getcurrent()
        # As in a thread: whoever asks for the running loop there has made a mistake.
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            self._stack.switch()
        finally:
            asyncio._set_running_loop(running)
            self.finished = self._stack.dead

    def is_running(self) -> bool:
        return getcurrent() is self._stack

    def park(self) -> None:
        """On the worker's side: let the loop go on until it says `step` again."""
        self._stack.parent.switch()
        if self.killed:
            raise ProcessDied


class LockstepExecutor:
    """Implements `core.runtime.Executor` for one simulated process."""

    def __init__(
        self, loop: VirtualLoop, random: Random, disk: SimulatedFileSystem, delay_seconds_max: float
    ) -> None:
        self.delay_seconds_max = delay_seconds_max
        self._loop = loop
        self._random = random
        # The first one is under way.
        self._calls: deque[tuple[_Worker, list[Callable[[], None]]]] = deque()
        disk.pause_point = self._pause

    async def run(self, call: Callable[[], T]) -> T:
        outcome: asyncio.Future[T] = self._loop.create_future()
        context = copy_context()

        def work() -> None:
            try:
                result = context.run(call)
            except ProcessDied:
                return
            except Exception as failure:
                settle(outcome.set_exception, failure)
            else:
                settle(outcome.set_result, result)

        def settle(
            how: Callable[[T], None] | Callable[[BaseException], None], what: object
        ) -> None:
            # The worker never touches the future: that is the loop's.
            done.append(lambda: None if outcome.done() else how(what))  # type: ignore[arg-type]  # pairs fit

        done: list[Callable[[], None]] = []
        worker = _Worker(work)
        self._calls.append((worker, done))
        if len(self._calls) == 1:
            self._loop.call_later(self._delay(), self._step)
        return await outcome

    def _step(self) -> None:
        worker, done = self._calls[0]
        worker.step()
        if worker.finished:
            self._calls.popleft()
            for settle in done:
                self._loop.call_later(self._delay(), settle)
        if self._calls:
            self._loop.call_later(self._delay(), self._step)

    def _pause(self) -> None:
        if self._calls and self._calls[0][0].is_running():
            self._calls[0][0].park()

    def _delay(self) -> float:
        return self._random.random() * self.delay_seconds_max

    def kill(self) -> None:
        """Unwind every worker of the process; call it when the process dies."""
        for worker, _ in self._calls:
            worker.killed = True
            while not worker.finished:
                worker.step()
        self._calls.clear()
