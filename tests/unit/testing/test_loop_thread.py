"""The event loop beside the test: results, errors, and being held still."""

import asyncio
import threading

import pytest

from headrace.testing.loop_thread import LoopThread

SECONDS = 10.0


def test_results_and_errors_come_back_to_the_caller() -> None:
    thread = LoopThread("test")

    async def answer() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    try:
        assert thread.run(answer(), SECONDS) == "test"
        with pytest.raises(ValueError, match="no"):
            thread.run(fail(), SECONDS)
        assert thread.call(lambda: 42, SECONDS) == 42
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda: 1 // 0, SECONDS)
    finally:
        thread.close()


def test_a_held_loop_stands_still_until_it_is_released() -> None:
    thread = LoopThread("test")

    async def answer() -> int:
        return 42

    try:
        thread.pause()
        thread.pause()
        with pytest.raises(TimeoutError):
            thread.run(answer(), 0.05)
        thread.resume()
        assert thread.run(answer(), SECONDS) == 42
    finally:
        thread.close()


def test_closing_cancels_what_still_runs_and_ends_the_thread() -> None:
    thread = LoopThread("test-closing")
    cancelled = threading.Event()

    async def begin() -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        thread.left = asyncio.create_task(forever())  # type: ignore[attr-defined]  # keeps it alive
        await asyncio.sleep(0)

    thread.run(begin(), SECONDS)
    thread.pause()
    thread.close()
    assert cancelled.is_set()
    assert "test-closing" not in {each.name for each in threading.enumerate()}
