"""Deadlines by key, the earliest first: a timer for many owners, without a clock of its own.

Whoever drives it asks for `next_deadline_ms`, waits that long, and takes what has expired:

    while (key := queue.pop_expired(now_ms)) is not None:
        ...  # look at the key; name its next deadline by `schedule`
"""

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")


class TimerQueue(Generic[K]):
    """One deadline per key, the earliest that was asked for.

    A deadline that moved to later is found out when the earlier one comes: whoever looks at the
    key names the next one. So a heartbeat, which only moves a deadline, costs nothing here.
    """

    __slots__ = ("_earliest", "_heap", "_not_before_ms", "_scheduled")

    def __init__(self) -> None:
        # With a number, so that equal deadlines keep their order and keys need none.
        self._heap: list[tuple[int, int, K]] = []
        self._earliest: dict[K, int] = {}
        self._scheduled = 0
        # Whoever names a time that has passed is not let spin: it is looked at next.
        self._not_before_ms = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When to look next; perhaps in vain, never too late."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, key: K, deadline_ms: int | None) -> None:
        """See to it that `key` expires by then; None asks for nothing."""
        if deadline_ms is None:
            return
        deadline_ms = max(deadline_ms, self._not_before_ms)
        known = self._earliest.get(key)
        if known is not None and known <= deadline_ms:
            return
        self._earliest[key] = deadline_ms
        self._scheduled += 1
        heappush(self._heap, (deadline_ms, self._scheduled, key))

    def pop_expired(self, now_ms: int) -> K | None:
        """A key whose deadline has come, the longest overdue first; None if there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, key = heappop(self._heap)
            if self._earliest.get(key) == deadline_ms:
                del self._earliest[key]
                self._not_before_ms = now_ms + 1
                return key
        return None
