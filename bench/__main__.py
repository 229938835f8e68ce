"""`python -m bench`: the whole comparison, or the parts named with `--only`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import beside, compaction, groups, http_and_text, latency, lifecycle, throughput
from bench.machine import look_at
from bench.readings import HEADRACE, KAFKA, OS, Readings
from bench.report import RunConditions, markdown, show
from bench.rows import judge, rows
from bench.sides import HEADRACE_SETTINGS, KAFKA_JVM, Side, make_side
from tests.support.brokers import ApacheKafka
from tests.support.processes import ProcessFailed
from tests.support.tools import ToolOutOfReach

_REPORT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything one run does."""

    pairs: int
    start_pairs: int
    warm_rounds: int
    restart_gigabytes: int
    restarts: int
    keys: int
    testing_brokers: int


FULL = Plan(5, 5, 3, 10, 3, 5_000_000, 100)
SHORT = Plan(2, 2, 1, 2, 1, 1_000_000, 100)


def _parts(plan: Plan, sides: list[Side], readings: Readings) -> dict[str, Callable[[], None]]:
    """The parts of a run by name, in their order."""
    plain = [side for side in sides if side.name != OS]

    def produce() -> None:
        throughput.measure_produce(sides, plan.pairs, readings)

    def consume() -> None:
        throughput.measure_consume(sides, plan.pairs, readings)

    def one() -> None:
        latency.warm_up(sides)
        latency.measure_one_at_a_time(sides, plan.pairs, readings)

    def end_to_end() -> None:
        latency.measure_end_to_end(sides, plan.pairs, readings)

    def memory() -> None:
        for side in plain:
            lifecycle.measure_memory_after_load(side, readings)

    def start() -> None:
        lifecycle.measure_start(sides, plan.start_pairs, readings)

    def many() -> None:
        for side in plain:
            lifecycle.measure_many_partitions(side, readings)

    def restart() -> None:
        for side in plain:
            lifecycle.measure_clean_restart(side, plan.restart_gigabytes, plan.restarts, readings)
            lifecycle.measure_crash_restart(side, plan.restarts, readings)

    def compact() -> None:
        for side in plain:
            compaction.measure_compaction(side, plan.keys, readings)

    def testing() -> None:
        if any(side.name == HEADRACE for side in sides):
            lifecycle.measure_testing_broker(plan.testing_brokers, readings)

    def joining() -> None:
        groups.measure_joining(sides, plan.pairs, readings)
        groups.measure_many_members(sides, readings)

    def commits() -> None:
        groups.measure_commits(sides, plan.pairs, readings)
        for side in plain:
            if side.name == HEADRACE:  # an absolute bar; Kafka takes half a minute for each
                groups.measure_restart(side, plan.restarts, readings)

    def neighbours() -> None:
        beside.measure_unread_answers(plain, readings)
        beside.measure_flush(plain, readings)
        beside.measure_deletion(plain, readings)

    def extra_listeners() -> None:
        http_and_text.measure_http_and_text(sides, plan.pairs, readings)

    core = (produce, consume, one, end_to_end, memory, start, many, restart, compact, testing)
    parts = (*core, neighbours, joining, commits, extra_listeners)
    return {part.__name__.replace("_", "-"): part for part in parts}


_NEED_WARM_BROKERS = {"produce", "consume", "one", "end-to-end", "memory"}


def _start_sides(names: list[str], directory: Path, console: Console) -> tuple[list[Side], str]:
    """The sides that could be started, and why Kafka could not."""
    sides, missing = [], ""
    for name in names:
        try:
            side = make_side(name, directory)
            side.broker.start()
        except (ToolOutOfReach, ProcessFailed) as error:
            if name != KAFKA:
                raise
            missing = str(error).splitlines()[0]
            console.print(f"Apache Kafka cannot be started, measuring Headrace alone: {missing}")
            continue
        sides.append(side)
    return sides, missing


def _settings_of(sides: list[Side]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for side in sides:
        if isinstance(side.broker, ApacheKafka):
            properties = side.broker.properties()
            found[side.name] = {"JVM": " ".join(KAFKA_JVM), **properties, "log.dirs": "…"}
        else:
            found[side.name] = HEADRACE_SETTINGS[side.name]
    return found


def _names(given: str, known: Sequence[str], option: str) -> list[str]:
    """What an option lists, or all there are; a name that is unknown ends the program."""
    chosen = [each.strip() for each in given.split(",") if each.strip()]
    unknown = [each for each in chosen if each not in known]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: known are {', '.join(known)}", param_hint=option
        )
    return chosen or list(known)


def main(
    short: Annotated[bool, typer.Option(help="Two pairs and less data, for daily use.")] = False,
    pairs: Annotated[int, typer.Option(help="Pairs of each measurement; 0: as the form says.")] = 0,
    only: Annotated[str, typer.Option(help="Parts to run, separated by commas.")] = "",
    sides_named: Annotated[
        str, typer.Option("--sides", help="Which sides: kafka, headrace (as it comes), os.")
    ] = ",".join((KAFKA, HEADRACE, OS)),
    data_dir: Annotated[Path | None, typer.Option(help="Where the brokers keep data.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where the report goes.")] = None,
    raw: Annotated[
        Path | None, typer.Option(help="Also every value, as JSON, to this file.")
    ] = None,
) -> None:
    """Compare Headrace with Apache Kafka and write the report."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    plan = SHORT if short else FULL
    if pairs:
        plan = Plan(pairs, pairs, *(getattr(plan, name) for name in Plan.__slots__[2:]))
    names = _names(sides_named, (KAFKA, HEADRACE, OS), "--sides")
    chosen = _names(only, tuple(_parts(plan, [], Readings())), "--only")
    directory = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=data_dir or "/var/tmp"))
    sides: list[Side] = []
    try:
        machine, load_before = look_at(directory), os.getloadavg()
        sides, missing = _start_sides(names, directory, console)
        readings = Readings(lambda line: console.print(line, style="dim", markup=False))
        parts = _parts(plan, sides, readings)
        if _NEED_WARM_BROKERS.intersection(chosen):
            parts["warm-up"] = lambda: throughput.warm_up(sides, plan.warm_rounds)
            chosen.insert(0, "warm-up")
        failed = [name for name in chosen if not _run_part(name, parts[name], console)]
        about = RunConditions(
            machine, plan.pairs, load_before, os.getloadavg(), _settings_of(sides), missing, short
        )
    finally:
        for each in sides:
            each.broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    verdicts = [judge(row, readings) for row in rows(machine, readings)]
    if only:
        verdicts = [verdict for verdict in verdicts if verdict.value is not None]
    show(verdicts, console)
    target = output or (_REPORT if not only else None)
    if target is not None:
        target.write_text(markdown(verdicts, readings, about))
        console.print(f"written: {target}")
    if raw is not None:
        raw.write_text(json.dumps(readings.as_json(), indent=1))
    if failed:
        console.print(f"parts that failed: {', '.join(failed)}", style="red")
        sys.exit(1)


def _run_part(name: str, part: Callable[[], None], console: Console) -> bool:
    """One part's failure must not cost the figures of the others; it is told and remembered."""
    console.rule(name)
    try:
        part()
    except Exception:
        console.print_exception(max_frames=6)
        return False
    return True


if __name__ == "__main__":
    typer.run(main)
