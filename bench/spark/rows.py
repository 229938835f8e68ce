"""The rows of the comparison on Spark: values as they are measured, and how they are judged."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

OURS = "headrace"
OFFICIAL = "official"  # the connector, with Headrace as its broker
OFFICIAL_KAFKA = "official on Kafka"
SIDES = (OURS, OFFICIAL, OFFICIAL_KAFKA)
PARITY_BAR = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what is measured, its unit, and the bar.

    `against` rows divide our rate by the better one of the official connector; `parity` rows
    divide its rate on Headrace by that on Apache Kafka.
    """

    title: str
    measure: str
    unit: str
    bar: float
    at_least: bool = True
    against: bool = False
    parity: bool = False


def _faster(title: str, measure: str, bar: float) -> Row:
    return Row(title, measure, "x", bar, against=True)


def _at_most(title: str, measure: str, unit: str, bar: float) -> Row:
    return Row(title, measure, unit, bar, at_least=False)


COMPARED = ("batch read", "stream read", "json windows", "to parquet", "write")
ROWS = [
    Row("decoder, 10 records a batch, per core", "decoder 10", "krow/s", 1500),
    Row("decoder, 1,000 records a batch, per core", "decoder 1000", "krow/s", 1500),
    Row("decoder, 1,000 of different lengths, per core", "decoder varied", "krow/s", 1500),
    _faster("batch read 100 B to noop", "batch read", 1.3),
    _faster("stream read to noop", "stream read", 1.2),
    _faster("JSON to 1 s window counts, typed read", "json windows", 1.5),
    _faster("topic to Parquet", "to parquet", 1.0),
    Row("topic to Delta", "to delta", "krow/s", 300),
    _faster("write 100 B rows to a topic", "write", 1.0),
    *(
        Row(f"official connector, {each}: Headrace over Kafka", each, "x", PARITY_BAR, parity=True)
        for each in COMPARED
    ),
    _at_most("micro-batch of 1,000 rows, p50, stateless", "micro-batch", "ms", 350),
    _at_most("micro-batch of 1,000 rows, p50, windowed", "micro-window", "ms", 800),
    _at_most("64 partitions, 6,400 rows, over 2 partitions", "64 over 2", "x", 2),
    _at_most("session start in tests", "session start", "s", 10),
    _at_most("Spark tests that share one session", "shared tests", "s", 360),
    _at_most("driver memory while reading through, growth", "memory grown", "MB", 300),
    _at_most("planner's memory over 200 batches, growth", "memory grown by a planner", "MB", 20),
]


@dataclass(slots=True)
class Values:
    """Everything measured in a run, by measure and side."""

    announce: Callable[[str], None] = lambda _: None
    found: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, measure: str, value: float, side: str = OURS) -> None:
        self.found[measure, side].append(value)
        self.announce(f"{measure}  {side}  {value:,.2f}")

    def of(self, measure: str, side: str = OURS) -> list[float]:
        return self.found.get((measure, side), [])

    def median(self, measure: str, side: str = OURS) -> float | None:
        values = self.of(measure, side)
        return statistics.median(values) if values else None

    def span(self, measure: str, side: str = OURS) -> str:
        """The median and the range, as text."""
        values = self.of(measure, side)
        if not values:
            return ""
        middle = number(statistics.median(values))
        return middle if len(values) == 1 else f"{middle} ({_ends(values)})"

    def measures(self) -> Iterator[str]:
        """The names of all measures, in the order first taken."""
        yield from dict.fromkeys(measure for measure, _ in self.found)


def _ends(values: list[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


def number(value: float) -> str:
    """A figure with as many digits as it deserves."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


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
    value = _value(values, row)
    if value is None:
        return Verdict(row, None, None)
    return Verdict(row, value, value >= row.bar if row.at_least else value <= row.bar)


def _value(values: Values, row: Row) -> float | None:
    """What is held against the bar. Ratios are of medians: rounds took turns, sides share noise."""
    ours = values.median(row.measure)
    here, there = (values.median(row.measure, side) for side in (OFFICIAL, OFFICIAL_KAFKA))
    if row.parity:
        return None if here is None or there is None else here / there
    if not row.against or ours is None:
        return ours
    best = max((each for each in (here, there) if each is not None), default=None)
    return None if best is None else ours / best
