"""A worker's call is seen to its end, whoever stops waiting."""

import asyncio
import threading

import pytest

from headrace.node.shielded_executor import ShieldedExecutor
from headrace.node.system import ThreadExecutor


async def test_one_who_is_cancelled_waits_for_the_worker_all_the_same() -> None:
    executor = ThreadExecutor()
    release, began = threading.Event(), threading.Event()
    done = False

    def work() -> None:
        nonlocal done
        began.set()
        release.wait(10)
        done = True

    task = asyncio.get_running_loop().create_task(ShieldedExecutor(executor).run(work))
    await executor.run(lambda: began.wait(10))
    task.cancel()
    finished, _ = await asyncio.wait([task], timeout=0.05)
    assert not finished
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done
    executor.close()


async def test_results_and_errors_come_through() -> None:
    executor = ThreadExecutor()
    assert await ShieldedExecutor(executor).run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await ShieldedExecutor(executor).run(lambda: 1 // 0)
    executor.close()
