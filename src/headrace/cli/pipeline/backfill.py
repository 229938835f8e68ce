"""`headrace pipeline backfill FILE`: a stretch of the past through its steps."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import Output, wants_json
from headrace.cli.output import counted, print_json
from headrace.cli.pipeline.sessions import (
    File,
    Master,
    Servers,
    Settings,
    loaded,
    require_spark,
    spark_for,
)

if TYPE_CHECKING:
    from headrace.spark.pipeline.backfilling import Backfill, Filled

_TIME = "earliest, latest, a time (ISO 8601, UTC without a zone) or milliseconds since 1970"
_OFFSETS = '{"TOPIC":{"0":N}} for every partition'


def register(group: typer.Typer) -> None:
    group.command()(backfill)


def backfill(
    file: File,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help=f"Where to begin: {_TIME}.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="Where to end, exclusive; by default now.",
            show_default=False,
        ),
    ] = None,
    since_offsets: Annotated[
        str | None,
        typer.Option(
            "--from-offsets",
            metavar="JSON",
            help=f"The same by offsets: {_OFFSETS}.",
            show_default=False,
        ),
    ] = None,
    until_offsets: Annotated[
        str | None,
        typer.Option(
            "--to-offsets",
            metavar="JSON",
            help="The same by offsets, exclusive.",
            show_default=False,
        ),
    ] = None,
    sinks: Annotated[
        list[str] | None,
        typer.Option(
            "--sink", metavar="NAME", help="Only this sink; may be repeated.", show_default=False
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Write to Delta tables even what they have.", show_default=False
        ),
    ] = False,
    master: Master = None,
    servers: Servers = None,
    settings: Settings = None,
    output: Output = "table",
) -> None:
    """Run a pipeline's steps as a batch over a range of times or offsets, into its sinks.

    Checkpoints are left alone: a pipeline that runs is not disturbed. A Delta table takes the
    same range once; a topic takes it each time. Without options the range is that of the file.
    """
    as_json = wants_json(output)
    begin = _point(since, since_offsets, "--from")
    end = _point(until, until_offsets, "--to")
    require_spark()
    pipeline = loaded(file, settings)
    pipeline.require_fillable(begin, end, sinks=sinks or (), bootstrap_servers=servers)
    spark = spark_for(pipeline, master)
    try:
        done = pipeline.backfill(
            spark, begin, end, sinks=sinks or (), again=again, bootstrap_servers=servers
        )
    finally:
        spark.stop()
    if as_json:
        print_json(_as_json(done))
    else:
        _tell(done)


def _point(time: str | None, offsets: str | None, option: str) -> Any:
    if time is not None and offsets is not None:
        raise typer.BadParameter(f"{option} and {option}-offsets are both given", param_hint=option)
    if offsets is None:
        return time
    try:
        found = json.loads(offsets)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter(
            f"{offsets!r} is not JSON such as {_OFFSETS}", param_hint=f"{option}-offsets"
        )
    return found


def _tell(done: "Backfill") -> None:
    for place, start in sorted(done.start.items()):
        print(f"{place}: offsets {start} to {done.end[place]}")
    if not done.sinks:
        print("there is nothing in this range")
    for sink in done.sinks:
        print(f"{sink.sink}: {_what(sink)}")
        if sink.note:
            print(f"  note: {sink.note}")


def _what(sink: "Filled") -> str:
    if sink.rows is None:
        return "has this range already, nothing was written"
    again = "" if sink.repeatable else "; run again, it writes them again"
    return f"wrote {counted(sink.rows, 'row')}{again}"


def _as_json(done: "Backfill") -> dict[str, object]:
    return {
        "offsets": [
            {"topic": place.topic, "partition": place.partition, "from": start,
             "to": done.end[place]}
            for place, start in sorted(done.start.items())
        ],
        "sinks": [
            {"sink": each.sink, "rows": each.rows, "written_before": each.rows is None}
            for each in done.sinks
        ],
    }  # fmt: skip
