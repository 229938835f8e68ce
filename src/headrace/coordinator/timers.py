"""The one timer of a coordinator: it wakes for the earliest deadline and for nothing else."""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.machine.timer_queue import TimerQueue

logger = logging.getLogger(__name__)

K = TypeVar("K")

RETRY_MS = 1_000
"""When a key is looked at again whose last look failed: nobody knows its next deadline."""

SLICE_MS = 5
"""How long expired keys are looked at in one turn of the event loop."""


class Timers(Generic[K]):
    """Drives a `TimerQueue` by the event loop: calls `on_expired(key)` when its time has come.

    A key that fails costs the others nothing: it is logged, looked at again after a while, and
    the timer is set.
    """

    def __init__(self, now_ms: Callable[[], int], on_expired: Callable[[K], None]) -> None:
        """`on_expired` names the key's next deadline by `schedule`, if it has one."""
        self._now_ms = now_ms
        self._on_expired = on_expired
        self._queue: TimerQueue[K] = TimerQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at_ms = 0
        self._closed = False

    def schedule(self, key: K, deadline_ms: int | None) -> None:
        """See to it that `key` is looked at by then."""
        if not self._closed:
            self._queue.schedule(key, deadline_ms)
            self._arm()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        earliest = self._queue.next_deadline_ms
        if earliest is None or self._closed:
            return
        if self._timer is not None:
            if self._fires_at_ms <= earliest:
                return
            self._timer.cancel()
        self._fires_at_ms = earliest
        delay_ms = max(0, earliest - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._run_expired)

    def _run_expired(self) -> None:
        # What is scheduled meanwhile arms nothing: this ends with it.
        self._fires_at_ms = 0
        now_ms = self._now_ms()
        try:
            while (key := self._queue.pop_expired(now_ms)) is not None:
                self._expire(key, now_ms)
                if self._now_ms() - now_ms >= SLICE_MS:
                    break  # the others have their turn, then what is left here
        finally:
            self._timer = None
            self._arm()

    def _expire(self, key: K, now_ms: int) -> None:
        try:
            self._on_expired(key)
        except Exception:
            logger.exception("a timer failed: key=%s", key)
            self._queue.schedule(key, now_ms + RETRY_MS)
