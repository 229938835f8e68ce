"""Who waits for a partition: for one offset, or for whatever can be read next.

A partition has either only while somebody waits, since there may be very many partitions. Both are
called on the event loop, in the order in which they came, and the mistake of one keeps neither the
others nor other partitions from being called.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headrace.core.errors import ErrorCode
from headrace.core.ids import Offset
from headrace.replication.reads import FetchIsolation

logger = logging.getLogger(__name__)

# Called with NONE when the offset is reached, or with why it never will be.
CommitCallback = Callable[[ErrorCode], None]

P = TypeVar("P")
P_in = TypeVar("P_in", contravariant=True)


class OffsetWaiters:
    """Callbacks by offset, which come in the order of their offsets."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[Offset, CommitCallback, object]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def first_requester(self) -> object:
        """On whose behalf the first one waits."""
        return self._waiting[0][2]

    def add(self, offset: Offset, call: CommitCallback, requester: object) -> None:
        self._waiting.append((offset, call, requester))

    def reached(self, offset: Offset) -> None:
        """Call all whose offset this is, or who are before it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _call(waiting.popleft()[1], ErrorCode.NONE)

    def fail(self, reason: ErrorCode) -> None:
        """None of the offsets will be reached."""
        waiting = self._waiting
        while waiting:
            _call(waiting.popleft()[1], reason)


def _call(call: CommitCallback, outcome: ErrorCode) -> None:
    try:
        call(outcome)
    except Exception:
        logger.exception("a waiter failed: outcome=%s", outcome.name)


class PartitionListener(Protocol[P_in]):
    """Called each time more can be read, and when nothing can be any more; must not read or append.

    It may watch thousands of partitions, so it is given which of them and how much more.
    """

    def advanced(self, partition: P_in, more_bytes: int, /) -> None: ...

    def gone(self, partition: P_in, /) -> None:
        """It is no longer led here, or no longer here at all."""
        ...


class PartitionListeners(Generic[P]):
    """The listeners of one partition, by up to where they read, in the order they came."""

    __slots__ = ("_by_isolation",)

    def __init__(self) -> None:
        self._by_isolation: dict[FetchIsolation, dict[PartitionListener[P], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_isolation.values()))

    @property
    def first_consumer(self) -> PartitionListener[P] | None:
        """Whoever waits for a flush: followers read what is written, flushed or not."""
        for isolation, listeners in self._by_isolation.items():
            if isolation is not FetchIsolation.LOG_END:
                return next(iter(listeners))
        return None

    def add(self, listener: PartitionListener[P], isolation: FetchIsolation) -> None:
        self._by_isolation.setdefault(isolation, {})[listener] = None

    def remove(self, listener: PartitionListener[P]) -> None:
        for isolation, listeners in tuple(self._by_isolation.items()):
            listeners.pop(listener, None)
            if not listeners:
                del self._by_isolation[isolation]

    def advanced(self, isolation: FetchIsolation, partition: P, more_bytes: int) -> None:
        """More can be read by those who read so far."""
        for listener in tuple(self._by_isolation.get(isolation, ())):
            try:
                listener.advanced(partition, more_bytes)
            except Exception:
                logger.exception("a listener failed: partition=%s", partition)

    def gone(self, partition: P) -> None:
        """Nothing can be read any more."""
        for listeners in tuple(self._by_isolation.values()):
            for listener in tuple(listeners):
                try:
                    listener.gone(partition)
                except Exception:
                    logger.exception("a listener failed: partition=%s", partition)
