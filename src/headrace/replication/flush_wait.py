"""Wait for the flush before the end of a log is reported.

A producer with acks=1 has its response before the flush. Asking for the end of the log next, it
must find what it wrote, as on a broker whose high watermark does not wait for a disk.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.core.errors import ErrorCode
from headrace.replication.partition import Partition

# On a disk that hangs, what is known after so long is reported.
FLUSH_WAIT_SECONDS_MAX = 5.0


def unflushed(partitions: Iterable[Partition | None]) -> dict[Partition, None]:
    """Those whose written records are still on their way to the disk."""
    return {
        partition: None
        for partition in partitions
        if partition is not None
        and not partition.is_flushed
        and partition.log.failure is None
        and not partition.closed
    }


def when_flushed(
    partitions: Iterable[Partition], call: Callable[[], None], requester: object | None = None
) -> None:
    """Call once all that is written now is flushed, or never will be, or the disk hangs.

    Other replicas are not waited for: one that lags, under load, might never have all of it.

    It is flushed at once: `requester` waits.
    """
    waiting = list(partitions)
    missing = len(waiting)
    called = False

    def finish() -> None:
        nonlocal called
        if not called:
            called = True
            timer.cancel()
            call()

    def one_less(_: ErrorCode) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            finish()

    if not waiting:
        call()
        return
    timer = asyncio.get_running_loop().call_later(FLUSH_WAIT_SECONDS_MAX, finish)
    for partition in waiting:
        partition.when_flushed(one_less, requester)


async def wait_until_flushed(partitions: Iterable[Partition | None], requester: object) -> None:
    """Return once all that is written there now is flushed, or as `when_flushed` says."""
    waiting = unflushed(partitions)
    if waiting:
        flushed = asyncio.Event()
        when_flushed(waiting, flushed.set, requester)
        await flushed.wait()
