"""Real time and randomness, used where the caller injects nothing else."""

import random
import time
import uuid


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class SystemRandomness:
    """The interpreter's generator; nothing here needs to be secret."""

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def random(self) -> float:
        return random.random()


def sleep_ms(ms: float) -> None:
    """Wait; the blocking face's only way to do so without a socket."""
    if ms > 0:
        time.sleep(ms / 1000)
