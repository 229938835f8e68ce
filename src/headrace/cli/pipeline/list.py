"""`headrace pipeline list PATH...`: which pipelines there are, and how far they have come."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_json, print_table
from headrace.cli.pipeline.sessions import Servers, require_spark

if TYPE_CHECKING:
    from headrace.spark.pipeline.listing import Row


def register(group: typer.Typer) -> None:
    group.command("list")(list_pipelines)


def list_pipelines(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR|FILE.yaml]...", help="By default this directory.", show_default=False
        ),
    ] = None,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """List pipelines with their sinks, last batches and lag; Spark is not started.

    The last batch is that of the checkpoint, if it lies on this machine. The lag is that of the
    group (`commit_group`), if a broker answers. Exit code 1 if a file is no pipeline.
    """
    as_json = wants_json(output)
    require_spark()
    from headrace.core.errors import HeadraceError
    from headrace.spark.pipeline import load
    from headrace.spark.pipeline.listing import pipeline_files, rows_of

    rows, wrong = [], False
    for file in pipeline_files(paths or [Path()]):
        try:
            rows += rows_of(load(file), servers)
        except HeadraceError as error:
            wrong = True
            print(error, file=sys.stderr)
    if as_json:
        print_json([_as_json(row) for row in rows])
    else:
        columns = ["pipeline", "source", "sink", "last batch", "at", "lag", "checkpoint"]
        print_table(columns, [_cells(row) for row in rows])
    if wrong:
        sys.exit(1)


def _cells(row: "Row") -> list[object]:
    number = "none" if row.last is None else row.last.number
    at = "" if row.last is None else _time(row.last.at)
    lag = "unknown" if row.lag is None else row.lag
    return [row.pipeline, row.source, row.sink, number, at, lag, row.checkpoint]


def _as_json(row: "Row") -> dict[str, object]:
    return {
        "pipeline": row.pipeline,
        "file": row.file,
        "source": row.source,
        "sink": row.sink,
        "checkpoint": row.checkpoint,
        "last_batch": None if row.last is None else row.last.number,
        "last_batch_at": None if row.last is None else _time(row.last.at),
        "lag": row.lag,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
