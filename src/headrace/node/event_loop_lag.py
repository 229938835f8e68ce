"""How late the event loop is: whatever holds it up holds up every client."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace.core.metrics import Histogram

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 0.5
# Longer than any work of ours takes in one piece; clients begin to notice.
WARNING_SECONDS: Final = 1.0


class EventLoopLagMonitor:
    """Wakes up twice a second and notes by how much it was late."""

    def __init__(self, seconds: Callable[[], float], on_sample: Callable[[], None]) -> None:
        """`also` is called each time: for what has to be looked at now and then."""
        self.lag = Histogram()
        self._seconds = seconds
        self._on_sample = on_sample

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            asked = self._seconds()
            await asyncio.sleep(INTERVAL_SECONDS)
            late = max(0.0, self._seconds() - asked - INTERVAL_SECONDS)
            self.lag.observe(late)
            if late >= WARNING_SECONDS:
                logger.warning("the event loop was held up: duration_ms=%d", late * 1000)
            try:
                self._on_sample()
            except Exception:
                logger.exception("what is looked at now and then failed")
