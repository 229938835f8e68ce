"""The report: a table for the terminal and `docs/benchmarks-spark.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.spark.rows import SIDES, Values, Verdict, number

_HEADINGS = ("row", "value", "bar", "", "ours", "official", "official on Kafka")
_WORDS = {True: "met", False: "not met", None: "not measured"}


@dataclass(frozen=True, slots=True)
class RunConditions:
    """Everything about a run that is not a figure of its table."""

    machine: Machine
    form: str
    versions: Mapping[str, str]
    settings: Mapping[str, Mapping[str, str]]
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    minutes: float


def _cells(verdict: Verdict, values: Values) -> list[str]:
    row = verdict.row
    value = "-" if verdict.value is None else f"{number(verdict.value)} {row.unit}"
    bar = f"{'≥' if row.at_least else '≤'} {row.bar:,g} {row.unit}"
    sides = [values.span(row.measure, side) or "-" for side in SIDES]
    return [row.title, value, bar, _WORDS[verdict.met], *sides]


def show(verdicts: Sequence[Verdict], values: Values, console: Console) -> None:
    """Print the table of rows."""
    table = Table(title="Spark: Headrace's format and the official connector")
    for heading in _HEADINGS:
        table.add_column(heading)
    for verdict in verdicts:
        style = {True: "green", False: "red", None: "yellow"}[verdict.met]
        cells = _cells(verdict, values)
        cells[3] = f"[{style}]{cells[3]}[/{style}]"
        table.add_row(*cells)
    console.print(table)


def markdown(verdicts: Sequence[Verdict], values: Values, about: RunConditions) -> str:
    """The whole page."""
    return "\n".join([*_opening(about), *_rows(verdicts, values), *_rest(values, about), ""])


def _opening(about: RunConditions) -> Iterator[str]:
    machine = about.machine
    yield "# Benchmarks: Spark\n"
    yield (
        "Written by `make bench-spark`. One Spark session on two cores ran all sides in turns, on "
        "the same rows (values of 100 bytes, keys of 8, two partitions unless said otherwise), "
        'with the brokers on the same machine and disk. *Ours* is `format("headrace")` on '
        "Headrace; *official* is Spark's own Kafka connector, on Headrace and on Apache Kafka. A "
        "ratio is ours over the faster of these two. Rates are krow/s: the median, with the lowest "
        "and the highest in brackets. Figures from another day or machine do not compare.\n"
    )
    yield "| | |\n|---|---|"
    yield f"| form | {about.form}, {about.minutes:.0f} minutes |"
    yield f"| processor | {machine.processor}, {machine.cores} cores |"
    yield f"| memory | {machine.memory_gb:.0f} GB |"
    yield f"| file system | {machine.file_system} |"
    yield f"| load average before, after | {_load(about.load_before)}; {_load(about.load_after)} |"
    for name, version in about.versions.items():
        yield f"| {name} | {version} |"
    yield ""


def _load(load: tuple[float, float, float]) -> str:
    return " ".join(f"{value:.2f}" for value in load)


def _rows(verdicts: Sequence[Verdict], values: Values) -> Iterator[str]:
    yield "## Rows\n"
    yield f"| {' | '.join(_HEADINGS)} |"
    yield "|---" * len(_HEADINGS) + "|"
    for verdict in verdicts:
        cells = _cells(verdict, values)
        if verdict.met is False:
            cells[3] = f"**{cells[3]}**"
        yield f"| {' | '.join(cells)} |"
    yield ""


def _rest(values: Values, about: RunConditions) -> Iterator[str]:
    yield "## Configurations\n"
    yield "Everything not named is the default.\n"
    for name, settings in about.settings.items():
        yield f"`{name}`\n\n```properties"
        yield from (f"{key}={value}" for key, value in settings.items())
        yield "```\n"
    yield "## All measures\n"
    yield "| measure | ours | official | official on Kafka |\n|---|---|---|---|"
    for measure in values.measures():
        cells = (values.span(measure, side) or "-" for side in SIDES)
        yield f"| {measure} | {' | '.join(cells)} |"
