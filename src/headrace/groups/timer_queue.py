"""One timer for all groups: it wakes for the earliest deadline and for nothing else."""

import asyncio
import logging
from collections.abc import Callable
from heapq import heappop, heappush

logger = logging.getLogger(__name__)

RETRY_MS = 1_000
"""When a key is looked at again whose last look failed: nobody knows its next deadline."""

TimerKey = tuple[int, str]
"""A shard's index and a group's id."""


class TimerQueue:
    """Calls `due(key)` when the deadline of `key` has come.

    Deadlines that moved to later are found out when the earlier one comes: the callee names the
    next one. So a heartbeat, which only moves a deadline, costs nothing here. A key that fails
    costs the others nothing: it is logged, looked at again after a while, and the timer is set.
    """

    def __init__(
        self, now_ms: Callable[[], int], on_expired: Callable[[TimerKey], int | None]
    ) -> None:
        """`due` returns the key's next deadline, if it has one."""
        self._now_ms = now_ms
        self._on_expired = on_expired
        self._heap: list[tuple[int, TimerKey]] = []
        self._earliest: dict[TimerKey, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at_ms = 0
        self._closed = False

    def schedule(self, key: TimerKey, deadline_ms: int | None) -> None:
        """See to it that `key` is looked at by then."""
        if deadline_ms is None or self._closed:
            return
        known = self._earliest.get(key)
        if known is not None and known <= deadline_ms:
            return
        self._earliest[key] = deadline_ms
        heappush(self._heap, (deadline_ms, key))
        self._arm()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if not self._heap or self._closed:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._fires_at_ms <= earliest:
                return
            self._timer.cancel()
        self._fires_at_ms = earliest
        delay_ms = max(0, earliest - self._now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._run_expired)

    def _run_expired(self) -> None:
        self._timer = None
        try:
            now_ms = self._now_ms()
            while self._heap and self._heap[0][0] <= now_ms:
                deadline_ms, key = heappop(self._heap)
                if self._earliest.get(key) != deadline_ms:
                    continue
                del self._earliest[key]
                later = self._expire(key, now_ms)
                # Whoever names a time that has passed is not let spin: it is looked at next.
                self.schedule(key, None if later is None else max(later, now_ms + 1))
        finally:
            self._arm()

    def _expire(self, key: TimerKey, now_ms: int) -> int | None:
        try:
            return self._on_expired(key)
        except Exception:
            logger.exception("group timer failed: partition=%d group=%s", *key)
            return now_ms + RETRY_MS
