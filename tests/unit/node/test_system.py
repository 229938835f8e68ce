"""Worker threads: outcomes come back to the loop, and nothing is left behind."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from headrace.core.errors import StorageUnavailable
from headrace.node.system import WORKERS, ThreadExecutor


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor()
    yield executor
    executor.close()


async def test_results_and_errors_come_back(executor: ThreadExecutor) -> None:
    def fail() -> None:
        raise ValueError("no")

    assert await executor.run(lambda: threading.current_thread().name) == "headrace-0"
    with pytest.raises(ValueError, match="no"):
        await executor.run(fail)
    assert await executor.run(lambda: 1) == 1


async def test_so_many_calls_overlap_and_no_more(executor: ThreadExecutor) -> None:
    meeting = threading.Barrier(WORKERS)
    names = await asyncio.gather(
        *(
            executor.run(lambda: (meeting.wait(10), threading.current_thread().name)[1])
            for _ in range(2 * WORKERS)
        )
    )
    assert len(set(names)) == WORKERS


async def test_one_call_at_a_time_needs_one_thread(executor: ThreadExecutor) -> None:
    names = {await executor.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert names == {"headrace-0"}


async def test_a_cancelled_wait_does_not_disturb_the_worker(executor: ThreadExecutor) -> None:
    gate = threading.Event()
    waiting = asyncio.ensure_future(executor.run(gate.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await executor.run(lambda: "next") == "next"


@pytest.mark.parametrize("threads_before", [0, 1])
async def test_threads_that_cannot_be_had_are_had_as_soon_as_there_are_some(
    executor: ThreadExecutor, monkeypatch: pytest.MonkeyPatch, threads_before: int
) -> None:
    """As at the limit of processes, while somebody else has taken all there are."""
    for _ in range(threads_before):
        await executor.run(lambda: None)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        async with asyncio.timeout(20):
            calls = [executor.run(lambda: "done") for _ in range(2 * WORKERS)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    if threads_before:
        assert outcomes == ["done"] * len(calls)
    else:
        assert {type(outcome) for outcome in outcomes} == {StorageUnavailable}
    meeting = threading.Barrier(WORKERS)
    async with asyncio.timeout(20):
        await asyncio.gather(*(executor.run(lambda: meeting.wait(10)) for _ in range(WORKERS)))


def test_a_call_outlives_a_loop_that_was_dropped() -> None:
    before = set(threading.enumerate())
    executor = ThreadExecutor()
    gate = threading.Event()
    done = threading.Event()

    def call() -> None:
        gate.wait(10)
        done.set()

    loop = asyncio.new_event_loop()
    task = loop.create_task(executor.run(call))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    gate.set()
    executor.close()
    assert done.is_set()
    assert set(threading.enumerate()) <= before
