"""How often a connection's long polls are answered.

An answer for every single record costs broker and client more than the record itself. So a
connection whose long polls end more than a few times in a few milliseconds is held back for a
millisecond, in which more records come together. Nobody who reads slower ever waits.
"""

from typing import Final

WINDOW_SECONDS: Final = 0.004
RESPONSES_IN_WINDOW: Final = 8
PAUSE_SECONDS: Final = 0.001


class FetchRateLimiter:
    """Counts the answers of one connection in short windows."""

    __slots__ = ("_responses", "_window_ends")

    def __init__(self) -> None:
        self._responses = 0
        self._window_ends = 0.0

    def delay(self, now: float) -> float:
        """Seconds to wait before the next answer; counts it."""
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_SECONDS
            self._responses = 0
        self._responses += 1
        return PAUSE_SECONDS if self._responses > RESPONSES_IN_WINDOW else 0.0
