"""Where in a segment's file readers stopped: most of them go on from there."""

from typing import Final

# How many positions are cached; beyond that the oldest are evicted.
POSITIONS_MAX: Final = 32
_EVICTED: Final = 16


class ReadPositions:
    """Batch boundaries by offset.

    Whoever reads and whoever flushes may add one at the same time, from different threads.
    """

    __slots__ = ("by_offset",)

    def __init__(self) -> None:
        self.by_offset: dict[int, int] = {}

    def cache(self, offset: int, position: int) -> None:
        """A batch boundary that somebody is likely to read from or up to."""
        positions = self.by_offset
        if len(positions) >= POSITIONS_MAX and offset not in positions:
            # A shorter copy takes its place: another thread may be adding to this one.
            newest = list(positions.copy().items())[_EVICTED:]
            positions = self.by_offset = dict(newest)
        positions[offset] = position

    def clear(self) -> None:
        self.by_offset = {}
