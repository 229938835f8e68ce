"""The report: a table for the terminal and `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.readings import HEADRACE, KAFKA, OS, Readings, Spread, spread
from bench.rows import Verdict


@dataclass(frozen=True, slots=True)
class RunConditions:
    """Everything about a run that is not a figure of its table."""

    machine: Machine
    pairs: int
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    settings: Mapping[str, Mapping[str, str]]
    kafka_missing: str
    short: bool


def figure(value: Spread | None) -> str:
    """`1.23 (1.10 to 1.40)`, or a dash."""
    if value is None:
        return "-"
    if value.count == 1:
        return _number(value.median)
    return f"{_number(value.median)} ({_number(value.lowest)} to {_number(value.highest)})"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def _bar(verdict: Verdict) -> str:
    if verdict.row.bar is None:
        return "-"
    return f"{'≥' if verdict.row.at_least else '≤'} {_number(verdict.row.bar)}"


def _met(verdict: Verdict) -> str:
    if verdict.row.bar is None and verdict.value is not None:
        return ""
    return {True: "met", False: "**not met**", None: "not measured"}[verdict.met]


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print the table of rows."""
    table = Table(title="Headrace and Apache Kafka side by side")
    for heading in ("row", "ratio or value", "bar", "", "Headrace", "os", "Kafka", "note"):
        table.add_column(heading)
    for verdict in verdicts:
        word = _met(verdict).strip("*")
        style = {True: "green", False: "red", None: "yellow"}[verdict.met]
        table.add_row(
            verdict.row.title,
            figure(verdict.value),
            _bar(verdict),
            f"[{style}]{word}[/{style}]",
            figure(verdict.ours),
            figure(verdict.with_os),
            figure(verdict.theirs),
            verdict.note,
        )
    console.print(table)


def markdown(verdicts: Sequence[Verdict], readings: Readings, about: RunConditions) -> str:
    """The whole page."""
    return "\n".join([*_opening(about), *_rows(verdicts), *_settings(about), *_measures(readings)])


def _opening(about: RunConditions) -> Iterator[str]:
    machine = about.machine
    form = "short form" if about.short else "full form"
    yield "# Benchmarks: Headrace and Apache Kafka side by side\n"
    yield (
        "Written by `make bench`. Both brokers ran on one machine in one run with their data on "
        "the same disk; the same client (confluent-kafka, in processes of its own) drove both, in "
        "turns whose order went back and forth. **Headrace is measured as it comes**: acks=all "
        "waits for the disk, while Kafka's waits for the page cache. The column `os` is Headrace "
        "with `log.flush.policy=os`, which has Kafka's rule; it is not judged. Headrace had its "
        "HTTP and text listeners open. A ratio is Headrace as it comes divided by Kafka, turn by "
        "turn: the median, with the lowest and the highest in brackets. Figures from another day "
        "or another machine do not compare.\n"
    )
    if about.kafka_missing:
        yield f"**Apache Kafka could not be started here ({about.kafka_missing}): "
        yield "Headrace was measured alone and no ratio could be taken.**\n"
    yield "| | |\n|---|---|"
    yield f"| pairs | {about.pairs} ({form}) |"
    yield f"| processor | {machine.processor}, {machine.cores} cores |"
    yield f"| memory | {machine.memory_gb:.0f} GB |"
    yield f"| file system | {machine.file_system} |"
    flush = f"p50 {machine.fdatasync_p50_ms:.2f} ms, p99 {machine.fdatasync_p99_ms:.2f} ms"
    yield f"| fdatasync | {flush} |"
    yield f"| load average before, after | {_load(about.load_before)}; {_load(about.load_after)} |"
    yield f"| Python | {machine.python} |\n"


def _load(load: tuple[float, float, float]) -> str:
    return " ".join(f"{value:.2f}" for value in load)


def _rows(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield "## Rows\n"
    yield "| row | ratio or value | bar | | Headrace | os | Kafka | note |"
    yield "|---|---|---|---|---|---|---|---|"
    for verdict in verdicts:
        yield (
            f"| {verdict.row.title} | {figure(verdict.value)} | {_bar(verdict)} | {_met(verdict)} "
            f"| {figure(verdict.ours)} | {figure(verdict.with_os)} | {figure(verdict.theirs)} "
            f"| {verdict.note} |"
        )
    yield ""


def _settings(about: RunConditions) -> Iterator[str]:
    yield "## Configurations\n"
    yield (
        "Everything not named is the default of that broker: `headrace` flushes what acks=all "
        "waits for, `os` leaves that to the operating system, as Kafka does.\n"
    )
    for name, settings in about.settings.items():
        yield f"`{name}`\n\n```properties"
        yield from (f"{key}={value}" for key, value in settings.items())
        yield "```\n"


def _measures(readings: Readings) -> Iterator[str]:
    yield "## All measures\n"
    yield "| measure | Kafka | Headrace | os |\n|---|---|---|---|"
    for measure in readings.measures():
        cells = (figure(spread(readings.of(measure, side))) for side in (KAFKA, HEADRACE, OS))
        yield f"| {measure} | {' | '.join(cells)} |"
    yield ""
