"""How late the event loop is: whatever holds it up holds up every client."""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.core.metrics import Histogram

EVERY_SECONDS: Final = 0.5


class LoopWatch:
    """Wakes up twice a second and notes by how much it was late."""

    def __init__(self, seconds: Callable[[], float], also: Callable[[], None]) -> None:
        """`also` is called each time: for what has to be looked at now and then."""
        self.lag = Histogram()
        self._seconds = seconds
        self._also = also

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            asked = self._seconds()
            await asyncio.sleep(EVERY_SECONDS)
            self.lag.observe(max(0.0, self._seconds() - asked - EVERY_SECONDS))
            self._also()
