"""`python -m bench.spark`: the rows that Spark has, with the official connector beside ours.

The connector's jars and Apache Kafka are used if they are to be had; without them the rows that
compare stay open, and the table says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from bench.machine import look_at
from bench.spark import decoder, reads, session, sides, topics, writes
from bench.spark.reads import Measuring
from bench.spark.report import RunConditions, markdown, show
from bench.spark.rows import ROWS, Values, judge
from bench.spark.session import Costs
from headrace.spark.session import DEFAULT_SETTINGS, LOCAL_SETTINGS

_REPORT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks-spark.md"
# So many that enough small batches remain when the first ones are left out.
_SMALL_ROWS = 60_000
_SMALL_CLICKS = 30_000
_FEW_ROWS = 180_000
_MANY_PARTITIONS = 64
_SMALL = reads.SmallTopics("small", "small-clicks", "few", "many")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything one run does."""

    name: str
    rows: int
    warm_rounds: int
    rounds: int
    starts: int
    gigabytes: float


FULL = Plan("full form", 3_000_000, 2, 3, 3, 5.0)
SHORT = Plan("short form", 1_500_000, 1, 1, 1, 5.0)
# In their order. The tests are not among the default ones: they take as long as a short run.
PARTS = (
    *("decoder", "start", "batch", "stream", "json", "parquet", "delta", "write", "small"),
    *("memory", "tests"),
)
_WITHOUT_SESSION = {"decoder", "start", "tests"}
_COMPARE = {"batch", "stream", "json", "parquet", "write"}
_READ_PLAIN = {"batch", "stream", "parquet", "delta", "memory"}


class _Progress:
    """Says what is being done, and since when."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self.failed: list[str] = []

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._begun) / 60

    def part(self, name: str, work: Callable[[], None]) -> None:
        """One part's failure must not cost the figures of the others; it is told and remembered."""
        self._console.rule(f"{name} ({self.minutes:.1f} min)")
        try:
            work()
        except Exception:
            self._console.print_exception(max_frames=6)
            self.failed.append(name)


def main(
    short: Annotated[bool, typer.Option(help="Less of everything: about six minutes.")] = False,
    rows: Annotated[int, typer.Option(help="Rows of the large topics; 0: as the form says.")] = 0,
    rounds: Annotated[int, typer.Option(help="Rounds that count; 0: as the form says.")] = 0,
    gigabytes: Annotated[float, typer.Option(help="How much the memory row reads.")] = 0,
    only: Annotated[str, typer.Option(help=f"Of {', '.join(PARTS)}, by commas.")] = "",
    data_dir: Annotated[Path | None, typer.Option(help="Where the brokers keep data.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where the report goes.")] = None,
) -> None:
    """Measure, print the rows and write the report."""
    form = SHORT if short else FULL
    plan = Plan(
        form.name,
        rows or form.rows,
        form.warm_rounds,
        rounds or form.rounds,
        form.starts,
        gigabytes or form.gigabytes,
    )
    chosen = [each for each in only.split(",") if each] or [
        each for each in PARTS if each != "tests"
    ]
    if unknown := set(chosen) - set(PARTS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    # As for Ctrl-C: brokers and the session are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=None if sys.stdout.isatty() else 200)
    values = Values(lambda line: console.print(line, style="dim", markup=False))
    progress = _Progress(console)
    load_before = os.getloadavg()
    directory = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=data_dir or "/var/tmp"))
    try:
        machine = look_at(directory)
        _measure(plan, chosen, directory, values, progress)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    verdicts = judge(values, ROWS)
    show(verdicts, values, console)
    target = output or (_REPORT if not only else None)
    if target is not None:
        about = RunConditions(
            machine,
            plan.name,
            _versions(),
            _settings(),
            load_before,
            os.getloadavg(),
            progress.minutes,
        )
        target.write_text(markdown(verdicts, values, about))
        console.print(f"written: {target}")
    if progress.failed:
        console.print(f"parts that failed: {', '.join(progress.failed)}", style="red")
        sys.exit(1)


def _measure(
    plan: Plan, chosen: list[str], directory: Path, values: Values, progress: _Progress
) -> None:
    alone: dict[str, Callable[[], None]] = {
        "decoder": lambda: decoder.measure(values, plan.rounds),
        "start": lambda: session.measure_start(values, plan.starts),
        "tests": lambda: session.measure_tests(values),
    }
    for name in PARTS:
        if name in chosen and name in alone:
            progress.part(name, alone[name])
    with_session = [name for name in PARTS if name in chosen and name not in _WITHOUT_SESSION]
    if not with_session:
        return
    jars = session.connector_jars() if _COMPARE.intersection(chosen) else []
    with ExitStack() as stack:
        found = sides.start_sides(stack, directory, official=bool(jars))
        spark = stack.enter_context(session.started(directory, jars))
        progress.part("topics", lambda: _fill(found, with_session, plan.rows))
        parts = _parts(spark, found, plan, values)
        for name in with_session:
            progress.part(name, parts[name])


def _fill(found: list[sides.Side], chosen: list[str], rows: int) -> None:
    everywhere = sides.brokers_of(found)
    ours = everywhere[:1]
    topics.fill(everywhere, topics.WAKING, topics.WAKING_ROWS, 2, topics.plain)
    if _READ_PLAIN.intersection(chosen):
        topics.fill(everywhere, "plain", rows, 2, topics.plain)
    if "json" in chosen:
        topics.fill(everywhere, "clicks", rows, 2, topics.click)
    if "small" in chosen:
        topics.fill(ours, _SMALL.plain, _SMALL_ROWS, 2, topics.plain)
        topics.fill(ours, _SMALL.clicks, _SMALL_CLICKS, 2, topics.click)
        topics.fill(ours, _SMALL.few, _FEW_ROWS, 2, topics.plain)
        even = _FEW_ROWS // _MANY_PARTITIONS * _MANY_PARTITIONS
        topics.fill(ours, _SMALL.many, even, _MANY_PARTITIONS, topics.plain)


def _parts(
    spark: SparkSession, found: list[sides.Side], plan: Plan, values: Values
) -> dict[str, Callable[[], None]]:
    """The parts that need the session, by name."""
    costs = Costs(spark, values)
    run = Measuring(spark, found, plan.rows, plan.warm_rounds, plan.rounds, values, costs)
    return {
        "batch": lambda: reads.measure_batch(run, "plain"),
        "stream": lambda: reads.measure_stream(run, "plain"),
        "json": lambda: reads.measure_json(run, "clicks"),
        "parquet": lambda: writes.measure_parquet(run, "plain"),
        "delta": lambda: writes.measure_delta(run, "plain"),
        "write": lambda: writes.measure_write(run),
        "small": lambda: reads.measure_small(run, _SMALL),
        "memory": lambda: reads.measure_memory(run, "plain", plan.gigabytes),
    }


def _versions() -> dict[str, str]:
    names = ("pyspark", "pyarrow", "numpy", "msgspec", "deltalake")
    return {"Python": platform.python_version(), **{name: version(name) for name in names}}


def _settings() -> dict[str, dict[str, str]]:
    return {
        "Spark": {
            "master": session.MASTER,
            **DEFAULT_SETTINGS,
            **LOCAL_SETTINGS,
            **session.SETTINGS,
        },
        "Headrace": sides.HEADRACE_SETTINGS,
        "Apache Kafka": {"JVM": " ".join(sides.KAFKA_JVM), **sides.KAFKA_SETTINGS},
    }


if __name__ == "__main__":
    typer.run(main)
