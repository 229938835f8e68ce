"""Interfaces to time, randomness and worker threads.

Production injects the real ones; the simulation injects ones driven by a seed and a virtual
clock, so that one seed gives one history. Nothing below `node/` reads a clock or a random
number or starts a thread for a call by itself, except in `client/system`, which is what a client
uses that was given nothing else (and in the blocking client, whose faces are threads).
"""

from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that only grow; for timeouts and durations."""
        ...


class Randomness(Protocol):
    def uuid(self) -> UUID:
        """A random (version 4) UUID, never one that Kafka reserves."""
        ...

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class Executor(Protocol):
    """Runs blocking calls (flush, retention, compaction) away from the event loop."""

    async def run(self, call: Callable[[], T]) -> T: ...
