"""What the bench commands share: the loop, percentiles, and how results are shown."""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import typer

from headrace.cli.output import print_json, print_table

T = TypeVar("T")

RecordCount = Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")]
RecordSize = Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of a record's value.")]
MEGABYTE = 1_000_000


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed: a slow client would measure itself."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rates(records: int, size_bytes: int, seconds: float) -> dict[str, float]:
    """Throughput in records and megabytes per second."""
    return {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds),
        "megabytes_per_second": round(size_bytes / MEGABYTE / seconds, 2),
    }


def show(title: str, results: dict[str, float], *, as_json: bool) -> None:
    """The results as one JSON object, or as a table of two columns."""
    if as_json:
        print_json(results)
        return
    rows = [[name.replace("_", " "), f"{value:,}"] for name, value in results.items()]
    print_table(["measure", "value"], rows, title=title)
