"""A fetch that found too little: it waits until its partitions have enough more to show.

Under the isolation it reads with: a follower waits for what is appended, a consumer for what is
committed, or belongs to no open transaction.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.broker.request import ClientConnection
from headrace.replication.partition import Partition
from headrace.replication.reads import FetchIsolation


class DelayedFetch:
    """One request that waits."""

    __slots__ = (
        "_connection",
        "_missing_bytes",
        "_partitions",
        "_respond",
        "_scheduled",
        "_timer",
    )

    def __init__(
        self,
        connection: ClientConnection,
        partitions: Iterable[Partition],
        wanted_bytes: int,
        respond: Callable[[], None],
    ) -> None:
        """`respond` is called once, when there is enough, a partition is gone or the time is up;
        never if the client is gone first."""
        self._connection = connection
        self._partitions = partitions
        self._missing_bytes = wanted_bytes
        self._respond = respond
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, isolation: FetchIsolation, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._finish)
        for partition in self._partitions:
            partition.add_listener(self, isolation)
        self._connection.delayed_operations[self] = None

    def advanced(self, _: Partition, more_bytes: int) -> None:
        self._missing_bytes -= more_bytes
        if self._missing_bytes <= 0:
            self._finish_soon()

    def gone(self, _: Partition) -> None:
        self._finish_soon()

    def cancel(self) -> None:
        """The client is gone."""
        self._stop_waiting()

    def _finish_soon(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = asyncio.get_running_loop()
        delay = self._connection.fetch_rate_limiter.delay(loop.time())
        if delay:
            loop.call_later(delay, self._finish)
        else:
            # After the produce that woke us has been answered.
            loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self._timer is None:
            return  # the timer and the wake-up met, or the client is gone
        self._stop_waiting()
        self._respond()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            partition.remove_listener(self)
        self._partitions = ()
        self._connection.delayed_operations.pop(self, None)
