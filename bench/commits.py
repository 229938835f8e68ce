"""This tree beside an earlier commit: `python -m bench.commits COMMIT`.

Whoever changes a hot path shows that nothing became slower. Both are measured in turns on the same
machine in one run, so what is judged is the ratio of each pair, never a figure of another day. A
rate may be 0.95 of what it was, CPU per request without a socket 1.03 times what it was; latencies
are told and not judged, since on a busy machine they say more about the neighbours.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import groups, latency, lifecycle, throughput
from bench.readings import Readings
from bench.sides import COMMON, Side, listener_settings
from tests.support.brokers import BrokerProcess, HeadraceProcess

BEFORE, NOW = "before", "now"
RATE_RATIO_MIN = 0.95
CPU_RATIO_MAX = 1.03
_HERE = Path(__file__).resolve().parents[1]
_RATES = re.compile(r"MB/s|per s$|per CPU second|events/s")
# "fast   14.1 us" as `bench.micro_produce` prints it.
_MICROSECONDS = re.compile(r"^(\w+)\s+([\d.]+)", re.MULTILINE)


class CommitProcess(HeadraceProcess):
    """`headrace serve` out of another tree, in this interpreter's environment."""

    kind = "Headrace of another commit"
    tree = _HERE

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "PYTHONPATH": str(self.tree / "src")}


def extract(commit: str, directory: Path) -> Path:
    """The files of a commit, without touching the work tree."""
    archive = subprocess.run(
        ["git", "archive", commit, "src", "bench", "tests", "scripts"],
        cwd=_HERE,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory


def _side(name: str, tree: Path, data: Path) -> Side:
    def fresh(label: str, settings: Mapping[str, str]) -> BrokerProcess:
        data_dir = data / f"{name}-{label}"
        shutil.rmtree(data_dir, ignore_errors=True)
        process = CommitProcess(data_dir, {**COMMON, **listener_settings(), **settings})
        process.tree = tree
        return process

    return Side(name, fresh("main", {}), fresh)


def _parts(sides: list[Side], pairs: int, readings: Readings) -> dict[str, Callable[[], None]]:
    def memory() -> None:
        for side in sides:
            lifecycle.measure_memory_after_load(side, readings)

    return {
        "produce": lambda: throughput.measure_produce(sides, pairs, readings),
        "consume": lambda: throughput.measure_consume(sides, pairs, readings),
        "one": lambda: latency.measure_one_at_a_time(sides, pairs, readings),
        "end-to-end": lambda: latency.measure_end_to_end(sides, pairs, readings),
        "memory": memory,
        "start": lambda: lifecycle.measure_start(sides, pairs, readings),
        "joining": lambda: groups.measure_joining(sides, pairs, readings),
        "commits": lambda: groups.measure_commits(sides, pairs, readings),
    }


def measure_without_socket(trees: Mapping[str, Path], pairs: int, readings: Readings) -> None:
    """CPU of one produce request, by each tree's own `bench.micro_produce`, in turns."""
    for pair in range(pairs):
        order = list(trees.items())
        for name, tree in order if pair % 2 == 0 else order[::-1]:
            said = subprocess.run(
                [sys.executable, "-m", "bench.micro_produce"],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            for way, microseconds in _MICROSECONDS.findall(said):
                readings.add(f"no socket, {way}: CPU us", name, float(microseconds))


def show(readings: Readings, console: Console) -> bool:
    """Print every measure with its ratios; whether none is worse than it may be."""
    table = Table("measure", BEFORE, NOW, "now / before", "range", "pairs", "")
    well = True
    for measure in readings.measures():
        ratios = readings.ratios(measure, NOW, against=BEFORE)
        if not ratios:
            continue
        ratio = statistics.median(ratios)
        verdict = ""
        if _RATES.search(measure):
            verdict = "ok" if ratio >= RATE_RATIO_MIN else "WORSE"
        elif measure.startswith("no socket"):
            verdict = "ok" if ratio <= CPU_RATIO_MAX else "WORSE"
        well = well and verdict != "WORSE"
        before, now = (statistics.median(readings.of(measure, name)) for name in (BEFORE, NOW))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(
            measure,
            f"{before:,.3g}",
            f"{now:,.3g}",
            f"{ratio:.3f}",
            spread,
            str(len(ratios)),
            verdict,
        )
    console.print(table)
    console.print(f"load average: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return well


def main(
    commit: Annotated[str, typer.Argument(help="The commit to compare with.")],
    pairs: Annotated[int, typer.Option(help="Pairs of each measurement.")] = 7,
    only: Annotated[
        str,
        typer.Option(help="Parts, separated by commas: no-socket and those of `python -m bench`."),
    ] = "no-socket,produce,consume,one,start,commits",
) -> None:
    """Measure this tree beside an earlier commit; exit code 1 if a row is worse than it may be."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    directory = Path(tempfile.mkdtemp(prefix="headrace-commits-", dir="/var/tmp"))
    readings = Readings(lambda line: console.print(line, style="dim", markup=False))
    sides: list[Side] = []
    try:
        trees = {BEFORE: extract(commit, directory / "tree"), NOW: _HERE}
        sides = [_side(name, tree, directory) for name, tree in trees.items()]
        parts = _parts(sides, pairs, readings)
        parts["no-socket"] = lambda: measure_without_socket(trees, pairs, readings)
        chosen = [each.strip() for each in only.split(",") if each.strip()]
        unknown = [each for each in chosen if each not in parts]
        if unknown:
            raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(parts)}")
        for side in sides:
            side.broker.start()
        throughput.warm_up(sides, 1)
        for each in chosen:
            console.rule(each)
            parts[each]()
    finally:
        for side in sides:
            side.broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if not show(readings, console):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
