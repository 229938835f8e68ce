"""The rows of the comparison on Spark: values as they are measured, and how they are judged."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

OURS = "headrace"
OFFICIAL = "official"  # the connector, reading Headrace
OFFICIAL_KAFKA = "official on Kafka"


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what is measured, its unit, and the bar.

    `against` rows divide our value by the better one of the official connector.
    """

    title: str
    measure: str
    unit: str
    bar: float
    at_least: bool = True
    against: bool = False


ROWS = [
    Row("decoder, 10 records a batch, per core", "decoder 10", "krow/s", 1500),
    Row("decoder, 1,000 records a batch, per core", "decoder 1000", "krow/s", 1500),
    Row("batch read 100 B to noop", "batch read", "krow/s", 1.3, against=True),
    Row("stream read to noop", "stream read", "krow/s", 1.2, against=True),
    Row("JSON to 1 s window counts, typed read", "json windows", "krow/s", 1.5, against=True),
    Row("topic to Parquet", "to parquet", "krow/s", 1.0, against=True),
    Row("topic to Delta", "to delta", "krow/s", 300),
    Row("write 100 B rows to a topic", "write", "krow/s", 1.0, against=True),
    Row("micro-batch of 1,000 rows, p50, stateless", "micro-batch", "ms", 350, at_least=False),
    Row("micro-batch of 1,000 rows, p50, windowed", "micro-window", "ms", 800, at_least=False),
    Row("64 partitions, 6,400 rows, over 2 partitions", "64 over 2", "x", 2, at_least=False),
    Row("driver memory while reading through", "memory grown", "MB", 300, at_least=False),
]


@dataclass(slots=True)
class Values:
    """Everything measured in a run, by measure and side."""

    announce: Callable[[str], None] = lambda _: None
    found: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, measure: str, value: float, side: str = OURS) -> None:
        self.found[measure, side].append(value)
        self.announce(f"{measure}  {side}  {value:,.1f}")

    def median(self, measure: str, side: str = OURS) -> float | None:
        values = self.found.get((measure, side))
        return statistics.median(values) if values else None

    def span(self, measure: str, side: str = OURS) -> str:
        """The median and the range, as text."""
        values = self.found.get((measure, side))
        if not values:
            return ""
        middle = f"{statistics.median(values):,.0f}"
        return middle if len(values) == 1 else f"{middle} ({min(values):,.0f}-{max(values):,.0f})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of one row; `met` is None where nothing was measured."""

    row: Row
    value: float | None
    met: bool | None


def judge(values: Values, rows: list[Row]) -> list[Verdict]:
    """Every row with its value and whether the bar is met."""
    return [_verdict(values, row) for row in rows]


def _verdict(values: Values, row: Row) -> Verdict:
    value = values.median(row.measure)
    if value is not None and row.against:
        sides = [values.median(row.measure, side) for side in (OFFICIAL, OFFICIAL_KAFKA)]
        best = max((each for each in sides if each is not None), default=None)
        value = None if best is None else value / best
    if value is None:
        return Verdict(row, None, None)
    return Verdict(row, value, value >= row.bar if row.at_least else value <= row.bar)
