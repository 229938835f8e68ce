"""A stretch of the past through a pipeline's steps and into its sinks, as a batch.

Times are looked up first, so that what is read is a range of offsets: the same range has the same
name, and a Delta table takes a batch of one name once. The same times may be another range later,
when records have come or gone meanwhile: one that shares offsets with an earlier range is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it

from headrace.core.errors import InvalidConfig
from headrace.spark.delta_table import PlainWrite, local_path, open_table
from headrace.spark.offsets import Offsets, to_json
from headrace.spark.options import source_options
from headrace.spark.pipeline.calls import done
from headrace.spark.pipeline.checking import check_topics
from headrace.spark.pipeline.checkpoints import read_up_to
from headrace.spark.pipeline.compiling import STREAM_OPTIONS, Program, batch_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.filled_ranges import earlier_overlap, range_name
from headrace.spark.pipeline.frames import check_schema, configured, frame_of, names_for, told_at
from headrace.spark.pipeline.model import Delta, Pairs, Parquet, Sink, Spec, Stateful, Topic, Window
from headrace.spark.pipeline.read_source import milliseconds
from headrace.spark.places import Places

Point = str | int | datetime | Mapping[str, Mapping[str, int]]
Side = Literal["starting", "ending"]
_EDGES: Final = "windows that reach over an end of the range hold only what lies within it"


@dataclass(frozen=True, slots=True)
class Filled:
    """What a backfill did to one sink; `rows` None where it had been done before."""

    sink: str
    rows: int | None
    repeatable: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill did: offsets from (inclusive) and to (exclusive), and each sink."""

    start: Offsets
    end: Offsets
    sinks: tuple[Filled, ...]

    @property
    def records(self) -> int:
        return sum(self.end[each] - self.start[each] for each in self.end)


def backfill(
    spec: Spec,
    spark: SparkSession,
    servers: str,
    findings: Findings,
    *,
    since: Point | None,
    until: Point | None,
    sinks: tuple[str, ...] = (),
    again: bool = False,
) -> Backfill:
    """Read a range, and write it to the chosen sinks (all), one after the other."""
    chosen = check_backfill(spec, servers, findings, since=since, until=until, sinks=sinks)
    start, end = _range(spec, servers, since, until)
    bounds = (
        ("startingOffsets", json.dumps(to_json(start))),
        ("endingOffsets", json.dumps(to_json(end))),
    )
    if all(end[each] <= start[each] for each in end):
        return Backfill(start, end, ())
    with configured(spark, spec, findings):
        check_schema(spec, findings)
        findings.refuse()
        names = [
            None if again else range_name(spec.query_name(sink), start, end) for sink in chosen
        ]
        if not again:
            _refuse_overlaps(spec, chosen, start, end, findings)
        programs = [
            batch_program(
                spec, sink, servers, bounds, once_as=name, sends_letters=sink is chosen[0]
            )
            for sink, name in zip(chosen, names, strict=True)
        ]
        # Every frame before the first write: what is wrong is told before anything is done.
        frames = [frame_of(program, spark, findings) for program in programs]
        findings.refuse()
        filled = [
            _filled(spec, program.sink, start, _write(program, frame, spark, name, findings))
            for program, frame, name in zip(programs, frames, names, strict=True)
        ]
    return Backfill(start, end, tuple(filled))


def check_backfill(
    spec: Spec,
    servers: str,
    findings: Findings,
    *,
    since: Point | None,
    until: Point | None,
    sinks: tuple[str, ...] = (),
) -> list[Sink]:
    """The sinks to fill, if the range and they make sense and their topics are there.

    Takes no session, so that it can be asked before Spark is started.
    """
    _refuse_words(spec, since, until, sinks)
    chosen = _chosen(spec, sinks, findings)
    check_topics(spec, chosen, servers, findings)
    findings.refuse()
    return chosen


def _refuse_words(
    spec: Spec, since: Point | None, until: Point | None, sinks: tuple[str, ...]
) -> None:
    """Names, times and offsets that mean nothing: all of them, not only the first."""
    known = [sink.name for sink in spec.sinks]
    wrong = [
        f"there is no sink {name!r}: there are {', '.join(known)}"
        for name in sinks
        if name not in known
    ]
    bounds: dict[Side, Pairs] = {"starting": spec.source.starting, "ending": spec.source.ending}
    given: tuple[tuple[Side, Point | None], ...] = (("starting", since), ("ending", until))
    for side, point in given:
        try:
            bounds[side] = bounds[side] if point is None else _bound(point, side)
        except InvalidConfig as error:
            wrong.append(str(error))
    if not wrong and _is_reversed(dict(bounds["starting"]), dict(bounds["ending"])):
        wrong.append("the range ends before it begins")
    if wrong:
        raise InvalidConfig("; ".join(wrong))


def _is_reversed(starting: Mapping[str, str], ending: Mapping[str, str]) -> bool:
    """Whether a range cannot hold anything, whatever there is: -1 and -2 stand for ends."""
    times = starting.get("startingTimestamp"), ending.get("endingTimestamp")
    if times[0] is not None and times[1] is not None:
        return int(times[0]) > int(times[1])
    first, last = (_numbered(text) for text in (starting.get("startingOffsets"),
                                                ending.get("endingOffsets")))  # fmt: skip
    return any(0 <= last[each] < first[each] for each in first if each in last)


def _numbered(offsets: str | None) -> dict[tuple[str, str], int]:
    """Offsets as they are given, by topic and partition; none where they are words."""
    try:
        given = json.loads(offsets or "")
        return {
            (topic, str(partition)): int(offset)
            for topic, found in given.items()
            for partition, offset in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # the source says what is wrong with them


def _write(
    program: Program,
    frame: DataFrame | None,
    spark: SparkSession,
    name: str | None,
    findings: Findings,
) -> int | None:
    """How many rows were written; None if the table has them by this name."""
    assert frame is not None, "what Spark refused has been told"
    if name is not None and _is_written(program.sink, name):
        return None
    counted = Observation()
    rows = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    with told_at(program.write.place, findings):
        done(program.write.value, {**names_for(spark), program.frame: rows})
    return int(counted.get["rows"])


def _chosen(spec: Spec, names: tuple[str, ...], findings: Findings) -> list[Sink]:
    """The sinks to fill; those that a batch cannot fill are told."""
    known = {sink.name: sink for sink in spec.sinks}
    chosen = [known[name] for name in dict.fromkeys(names)] if names else list(spec.sinks)
    for sink in chosen:
        if isinstance(sink.target, Parquet):
            findings.add(
                sink.place,
                "a batch cannot add to the files of a stream: readers heed the stream's list of "
                "files, and would not see them. Choose other sinks, or use a delta sink",
            )
        if isinstance(sink.target, Delta) and sink.target.mode == "complete":
            findings.add(sink.place, "mode complete: a range would replace the whole table")
        for step in spec.steps_of(sink):
            if isinstance(step, Stateful):
                findings.add(
                    step.place, "a batch has no state from before its range, so it cannot do this"
                )
    return chosen


def _range(
    spec: Spec, servers: str, since: Point | None, until: Point | None
) -> tuple[Offsets, Offsets]:
    """Offsets of every partition, from and to; without an end, what is there now."""
    starting = spec.source.starting if since is None else _bound(since, "starting")
    ending = spec.source.ending if until is None else _bound(until, "ending")
    given = {name: text for name, text in spec.source.options if name not in STREAM_OPTIONS}
    # A partition may have nothing as late as the start; there the range is empty.
    given.setdefault("startingOffsetsByTimestampStrategy", "latest")
    options = {**given, **dict(starting), **dict(ending), "kafka.bootstrap.servers": servers}
    chosen = source_options(options, streaming=False)
    places = Places(chosen)
    try:
        start = places.resolve(chosen.starting, "starting")
        end = places.resolve(chosen.ending, "ending")
    finally:
        places.close()
    return start, {each: max(end[each], start[each]) for each in end}


def _bound(point: Point, side: Side) -> Pairs:
    if isinstance(point, Mapping):
        return ((f"{side}Offsets", json.dumps(point)),)
    if isinstance(point, datetime):
        aware = point if point.tzinfo else point.replace(tzinfo=UTC)
        return ((f"{side}Timestamp", str(int(aware.timestamp() * 1000))),)
    if isinstance(point, int):
        return ((f"{side}Timestamp", str(point)),)
    if point in ("earliest", "latest"):
        return ((f"{side}Offsets", point),)
    time = milliseconds(point)
    if time is None:
        raise InvalidConfig(
            f"{point!r} is not earliest, latest or a time such as 2026-01-31T12:00:00Z"
        )
    return ((f"{side}Timestamp", str(time)),)


def _refuse_overlaps(
    spec: Spec, sinks: list[Sink], start: Offsets, end: Offsets, findings: Findings
) -> None:
    """Tell of tables that have a part of the range; an upsert does no harm to what it has."""
    for sink in sinks:
        if not isinstance(sink.target, Delta) or sink.target.upsert is not None:
            continue
        query = spec.query_name(sink)
        table = open_table(local_path(sink.target.path))
        if table is None or PlainWrite(range_name(query, start, end)).is_in(table):
            continue
        shared = earlier_overlap(table, query, start, end)
        if shared is not None:
            place = shared.partition
            findings.add(
                sink.place,
                f"an earlier backfill has written offsets {shared.start} to {shared.end - 1} of "
                f"{place}, and this one is to read {start[place]} to {end[place] - 1}: choose a "
                "range beside it, by offsets if times have come to mean others, or write them "
                "twice with `--again`",
            )


def _is_written(sink: Sink, name: str) -> bool:
    if not isinstance(sink.target, Delta):
        return False
    table = open_table(local_path(sink.target.path))
    return table is not None and PlainWrite(name).is_in(table)


def _filled(spec: Spec, sink: Sink, start: Offsets, rows: int | None) -> Filled:
    has_windows = any(isinstance(step, Window) for step in spec.steps_of(sink))
    notes = [_EDGES] if has_windows and isinstance(sink.target, Topic | Delta) else []
    if rows:
        notes += twice(spec, sink, start)
    return Filled(
        sink=sink.name,
        rows=rows,
        repeatable=isinstance(sink.target, Delta),
        note="; ".join(notes),
    )


def twice(spec: Spec, sink: Sink, start: Offsets) -> list[str]:
    """What to say of rows that the pipeline itself has written too, as its checkpoint tells."""
    if not isinstance(sink.target, Delta) or sink.target.upsert is not None:
        return []
    read = read_up_to(spec.checkpoint_of(sink))
    return [
        f"the pipeline itself has read {each} up to offset {read[each]}: rows from there may be "
        "in the table twice now"
        for each in sorted(start)
        if start[each] < read.get(each, 0)
    ][:1]
