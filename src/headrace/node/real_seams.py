"""Time, randomness and worker threads as they really are."""

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID, uuid4

T = TypeVar("T")

# Flushes, retention, checkpoints and start-up scans; each mostly waits for the disk.
WORKERS = 4
# Kafka reserves ids with all high bits clear for its own purposes.
RESERVED_IDS_MAX = 100


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000


class RealRandomness:
    def uuid(self) -> UUID:
        while True:
            fresh = uuid4()
            # An id that starts with a dash in base 64 is taken for an option by command lines.
            if fresh.int > RESERVED_IDS_MAX and fresh.bytes[0] >> 2 != 62:
                return fresh

    def random(self) -> float:
        return random.random()


class ThreadExecutor:
    """Runs blocking calls in a few threads of this process."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="headrace")

    async def run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
