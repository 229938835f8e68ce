"""Time, randomness and worker threads as they really are."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

from headrace.core.errors import StorageUnavailable

T = TypeVar("T")

# Flushes (up to four at a time), checkpoints, retention, cleaning and start-up scans: each mostly
# waits for the disk, and no flush should wait until one of the others has ended.
WORKERS = 8
# Kafka reserves ids with all high bits clear for its own purposes.
RESERVED_IDS_MAX = 100


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000


class RealRandomness:
    def uuid(self) -> UUID:
        while True:
            fresh = uuid4()
            # An id that starts with a dash in base 64 is taken for an option by command lines.
            if fresh.int > RESERVED_IDS_MAX and fresh.bytes[0] >> 2 != 62:
                return fresh

    def random(self) -> float:
        return random.random()


class ThreadExecutor:
    """Runs blocking calls in a few threads of this process.

    Half as long on the way as the standard library's pool, whose futures any thread may wait
    for: a small produce that is to survive a power cut goes through here twice. Only the loop
    that asked waits here. For the use of one event loop.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Raises `StorageUnavailable` where there is no thread and none can be had."""
        loop = asyncio.get_running_loop()
        job = _Job(call, loop, loop.create_future())
        self._under_way += 1
        try:
            if len(self._threads) < min(self._under_way, WORKERS):
                self._add_thread()
            self._jobs.put(job)
            result: T = await job.outcome
            return result
        finally:
            self._under_way -= 1

    def _add_thread(self) -> None:
        """Where the system has none to give, those that are there have to do, until it has."""
        name = f"headrace-{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise StorageUnavailable(
                    f"no thread to ask the disk with: {error}",
                    hint="raise the limit of processes and threads (ulimit -u, pids.max)",
                ) from error
        else:
            self._threads.append(thread)

    def close(self) -> None:
        """Finish what was asked for; nothing may be asked for any more."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class _Job(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[Any]

    def succeed(self, result: object) -> None:
        if not self.outcome.done():  # cancelled meanwhile
            self.outcome.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            result = job.call()
        except BaseException as error:
            _tell(job.loop, job.fail, error)
        else:
            _tell(job.loop, job.succeed, result)
            del result
        del job  # nothing of it must live until the next one


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[Any], None], outcome: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(what, outcome)
