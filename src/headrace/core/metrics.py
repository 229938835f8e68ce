"""Counts and times, as cheap as an integer in a slot; names and labels are given when asked for.

What happens often is counted in plain integers by whoever does it. Nothing is looked up by
label on the way: who needs a count per API holds the object of that API. Only when somebody
asks for the metrics are the numbers gathered into families, and only then do they get names.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

# From a produce that stays in memory to a disk that hardly answers.
SECONDS_BOUNDS: Final = (
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)

Kind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """How many values fell below each bound (the last count: above all), and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


Value = float | Histogram
Sample = tuple[tuple[str, ...], Value]


class Metric(NamedTuple):
    """A metric as it is documented."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def of(self, *samples: Sample) -> "Family":
        """The family with these samples: label values, and the number or histogram."""
        return Family(self, samples)

    def each(self, samples: Iterable[Sample]) -> "Family":
        return Family(self, samples)

    def value(self, value: Value) -> "Family":
        """The family of a metric without labels."""
        return Family(self, (((), value),))


class Family(NamedTuple):
    """A metric and what it is now; `samples` may be made while they are read."""

    metric: Metric
    samples: Iterable[Sample]
