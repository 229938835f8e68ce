"""An event loop in a thread of its own, so that a test's own thread and loop stay free."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads; `hold` freezes it as SIGSTOP would."""

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._resumed: threading.Event | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        """The coroutine's result, or its exception; `TimeoutError` when it takes too long."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            future.cancel()
            raise

    def call(self, function: Callable[[], T], timeout_seconds: float) -> T:
        """The result of a plain function, called on the loop."""
        future: Future[T] = Future()

        def step() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(step)
        return future.result(timeout_seconds)

    def pause(self) -> None:
        """Stop the loop where it stands until `release`; returns once it stands."""
        if self._resumed is not None:
            return
        released = self._resumed = threading.Event()
        standing = threading.Event()

        def stand() -> None:
            standing.set()
            released.wait()

        self._loop.call_soon_threadsafe(stand)
        standing.wait()

    def resume(self) -> None:
        """Let a held loop go on."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def close(self) -> None:
        """End the loop with whatever tasks are left on it, and the thread."""
        self.resume()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(_finish_accepted())
        finally:
            loop.close()


async def _finish_accepted() -> None:
    """Connections that were just accepted are introduced in the next turn, and refused in the
    one after it; only then may the loop be closed."""
    for _ in range(3):
        await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
