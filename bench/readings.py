"""What was measured: values by measure and side, and the ratios between sides."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KAFKA = "kafka"
HEADRACE = "headrace"  # as it comes: acks=all waits for the disk
OS = "os"  # log.flush.policy=os: Kafka's own durability


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some values and how far they lie apart."""

    median: float
    lowest: float
    highest: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Median and range; None where nothing was measured."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


class Readings:
    """Every value of a run, in the order taken, so that pairs can be matched."""

    def __init__(self, announce: Callable[[str], None] = lambda _: None) -> None:
        self._values: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._announce = announce

    def add(self, measure: str, side: str, value: float) -> None:
        """Note one value."""
        self._values[measure, side].append(value)
        self._announce(f"{measure}  {side}  {value:,.3f}")

    def of(self, measure: str, side: str) -> list[float]:
        """The values of one measure on one side."""
        return self._values.get((measure, side), [])

    def ratios(self, measure: str, side: str, against: str = KAFKA) -> list[float]:
        """`side` over `against`, value by value: the n-th of one with the n-th of the other."""
        pairs = zip(self.of(measure, side), self.of(measure, against), strict=False)
        return [ours / theirs for ours, theirs in pairs if theirs > 0]

    def measures(self) -> list[str]:
        """The names of all measures, in the order first taken."""
        return list(dict.fromkeys(measure for measure, _ in self._values))

    def as_json(self) -> dict[str, dict[str, list[float]]]:
        """All values, for a later look."""
        found: dict[str, dict[str, list[float]]] = defaultdict(dict)
        for (measure, side), values in self._values.items():
            found[measure][side] = values
        return found
