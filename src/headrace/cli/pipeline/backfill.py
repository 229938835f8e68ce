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
    from headrace.spark.offsets import Offsets
    from headrace.spark.pipeline.backfill import Backfill, BackfillPlan, Filled

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
            "--again",
            help="Write even what a Delta table has, or the pipeline itself has written.",
            show_default=False,
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Tell the range and what would be done with it; write nothing.",
            show_default=False,
        ),
    ] = False,
    master: Master = None,
    servers: Servers = None,
    settings: Settings = None,
    output: Output = "table",
) -> None:
    """Run a pipeline's steps as a batch over a range of times or offsets, into its sinks.

    Checkpoints are left alone: a pipeline that runs is not disturbed. What the pipeline itself has
    written is refused without --again, before anything is written. A Delta table takes the same
    range once; a topic takes it each time. Without options the range is that of the file.
    """
    as_json = wants_json(output)
    begin = _point(since, since_offsets, "--from")
    end = _point(until, until_offsets, "--to")
    require_spark()
    pipeline = loaded(file, settings)
    plan = pipeline.require_fillable(
        begin, end, sinks=sinks or (), again=again, bootstrap_servers=servers
    )
    if dry_run:
        _print_plan(plan, as_json=as_json)
        return
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
        _print_result(done)


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


def _print_result(done: "Backfill") -> None:
    for place, start in sorted(done.start.items()):
        print(f"{place}: offsets {start} to {done.end[place]}")
    if not done.sinks:
        print("there is nothing in this range")
    for sink in done.sinks:
        print(f"{sink.sink}: {_what(sink)}")
        if sink.note:
            print(f"  note: {sink.note}")


def _print_plan(plan: "BackfillPlan", *, as_json: bool) -> None:
    each = list(zip(plan.sinks, plan.held, plan.is_written, strict=True))
    if as_json:
        print_json(
            {
                "dry_run": True,
                "offsets": _offsets(plan.start, plan.end),
                "sinks": [
                    {"sink": sink.name, "written_before": done, "written_by_pipeline": bool(held)}
                    for sink, held, done in each
                ],
            }
        )
        return
    for place, start in sorted(plan.start.items()):
        print(f"{place}: offsets {start} to {plan.end[place]}")
    for sink, held, done in each if plan.records else ():
        again = "; writes again what the pipeline itself has written" if held else ""
        said = "has this range already" if done else f"would get {counted(plan.records, 'record')}"
        print(f"{sink.name}: {said}{'' if done else again}")
    print("nothing was read or written" if plan.records else "there is nothing in this range")


def _what(sink: "Filled") -> str:
    if sink.rows is None:
        return "has this range already, nothing was written"
    again = "" if sink.repeatable else "; run again, it writes them again"
    return f"wrote {counted(sink.rows, 'row')}{again}"


def _as_json(done: "Backfill") -> dict[str, object]:
    return {
        "offsets": _offsets(done.start, done.end),
        "sinks": [
            {"sink": each.sink, "rows": each.rows, "written_before": each.rows is None}
            for each in done.sinks
        ],
    }


def _offsets(start: "Offsets", end: "Offsets") -> list[dict[str, object]]:
    return [
        {"topic": place.topic, "partition": place.partition, "from": first, "to": end[place]}
        for place, first in sorted(start.items())
    ]
