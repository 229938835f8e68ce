"""Worker threads that run in lockstep with the virtual loop: overlap without chance.

A call runs in a thread of its own, but only while the loop stands still. In the middle of every
sync the worker parks and the loop goes on for a while of virtual time; so appends, rolls and
crashes fall into the middle of a flush, and the same seed gives the same interleaving every
time. Calls wait for each other, because workers may hold locks of their own across a sync. The
loop must never wait for such a lock: that stops the whole simulation, as appends must go on.
A worker of a dead process is unwound without touching anything.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import TypeVar

from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.loop import VirtualLoop
from tests.simulation.processes import ProcessDied

T = TypeVar("T")


class _Worker(threading.Thread):
    """One call; takes turns with the loop by two semaphores."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._my_turn = threading.Semaphore(0)
        self._loops_turn = threading.Semaphore(0)
        self.finished = False
        self.killed = False

    def run(self) -> None:
        self._my_turn.acquire()
        try:
            if not self.killed:
                self._work()
        finally:
            self.finished = True
            self._loops_turn.release()

    def step(self) -> None:
        """On the loop's side: let the worker run until it parks or ends."""
        self._my_turn.release()
        self._loops_turn.acquire()

    def park(self) -> None:
        """On the worker's side: let the loop go on until it says `step` again."""
        self._loops_turn.release()
        self._my_turn.acquire()
        if self.killed:
            raise ProcessDied


class LockstepExecutor:
    """Implements `core.seams.Executor` for one simulated process."""

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
            # The thread that made the result never touches the future: that is the loop's.
            done.append(lambda: None if outcome.done() else how(what))  # type: ignore[arg-type]  # pairs fit

        done: list[Callable[[], None]] = []
        worker = _Worker(work)
        worker.start()
        self._calls.append((worker, done))
        if len(self._calls) == 1:
            self._loop.call_later(self._delay(), self._step)
        return await outcome

    def _step(self) -> None:
        worker, done = self._calls[0]
        worker.step()
        if worker.finished:
            worker.join()
            self._calls.popleft()
            for settle in done:
                self._loop.call_later(self._delay(), settle)
        if self._calls:
            self._loop.call_later(self._delay(), self._step)

    def _pause(self) -> None:
        worker = threading.current_thread()
        if isinstance(worker, _Worker):
            worker.park()

    def _delay(self) -> float:
        return self._random.random() * self.delay_seconds_max

    def kill(self) -> None:
        """Unwind every worker of the process; call it when the process dies."""
        for worker, _ in self._calls:
            worker.killed = True
            while not worker.finished:
                worker.step()
            worker.join()
        self._calls.clear()
