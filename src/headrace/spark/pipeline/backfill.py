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
from headrace.spark.offset_resolver import OffsetResolver
from headrace.spark.offsets import Offsets, Range, to_json
from headrace.spark.options import source_options
from headrace.spark.pipeline.calls import evaluate
from headrace.spark.pipeline.checkpoints import CheckpointUnreadable, begun_at, planned_up_to
from headrace.spark.pipeline.checks import check_topics
from headrace.spark.pipeline.compiler import STREAM_OPTIONS, Program, batch_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.filled_ranges import earlier_overlap, range_name
from headrace.spark.pipeline.frames import check_schema, configured, frame_of, names_for, raised_at
from headrace.spark.pipeline.model import (
    DeltaTarget,
    Pairs,
    ParquetTarget,
    Sink,
    Spec,
    Stateful,
    TopicTarget,
    Window,
)
from headrace.spark.pipeline.read_source import milliseconds
from headrace.spark.watermarks import local

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
    plan = check_backfill(
        spec, servers, findings, since=since, until=until, sinks=sinks, again=again
    )
    chosen, start, end = plan.sinks, plan.start, plan.end
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
            _filled(spec, program.sink, held, _write(program, frame, spark, name, findings))
            for program, frame, name, held in zip(programs, frames, names, plan.held, strict=True)
        ]
    return Backfill(start, end, tuple(filled))


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill is going to do; `held` is, for each sink, what is there already."""

    sinks: list[Sink]
    start: Offsets
    end: Offsets
    held: list[list[Range]]
    is_written: list[bool]

    @property
    def records(self) -> int:
        return sum(self.end[each] - self.start[each] for each in self.end)


def check_backfill(
    spec: Spec,
    servers: str,
    findings: Findings,
    *,
    since: Point | None,
    until: Point | None,
    sinks: tuple[str, ...] = (),
    again: bool = False,
) -> BackfillPlan:
    """What would be done, if the range and the sinks make sense and their topics are there.

    Refuses what would come twice, unless `again`. Takes no session, so that it can be asked before
    Spark is started, and nothing has been written.
    """
    _refuse_words(spec, since, until, sinks)
    chosen = _chosen(spec, sinks, findings)
    check_topics(spec, chosen, servers, findings)
    findings.refuse()
    start, end = _range(spec, servers, since, until)
    held = [
        _held(spec, sink, servers, start, end, None if again else findings)
        if _writes_twice(sink)
        else []
        for sink in chosen
    ]
    written = [
        not again and _is_written(sink, range_name(spec.query_name(sink), start, end))
        for sink in chosen
    ]
    findings.refuse()
    if not again:
        _refuse_overlaps(spec, chosen, start, end, findings)
        for sink, ranges, is_done in zip(chosen, held, written, strict=True):
            if not is_done:
                _refuse_held(sink, ranges, findings)
        if spec.dead_letter_topic is not None and not all(written):
            _refuse_dead_letters(spec, servers, start, end, findings)
        findings.refuse()
    return BackfillPlan(chosen, start, end, held, written)


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
    with raised_at(program.write.location, findings):
        evaluate(program.write.value, {**names_for(spark), program.frame: rows})
    return int(counted.get["rows"])


def _chosen(spec: Spec, names: tuple[str, ...], findings: Findings) -> list[Sink]:
    """The sinks to fill; those that a batch cannot fill are told."""
    known = {sink.name: sink for sink in spec.sinks}
    chosen = [known[name] for name in dict.fromkeys(names)] if names else list(spec.sinks)
    for sink in chosen:
        if isinstance(sink.target, ParquetTarget):
            findings.add(
                sink.location,
                "a batch cannot add to the files of a stream: readers heed the stream's list of "
                "files, and would not see them. Choose other sinks, or use a delta sink",
            )
        if isinstance(sink.target, DeltaTarget) and sink.target.mode == "complete":
            findings.add(sink.location, "mode complete: a range would replace the whole table")
        for step in spec.steps_of(sink):
            if isinstance(step, Stateful):
                findings.add(
                    step.location,
                    "a batch has no state from before its range, so it cannot do this",
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
    resolver = OffsetResolver(chosen)
    try:
        start = resolver.resolve(chosen.starting, "starting")
        end = resolver.resolve(chosen.ending, "ending")
    finally:
        resolver.close()
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
        if not isinstance(sink.target, DeltaTarget) or sink.target.upsert is not None:
            continue
        query = spec.query_name(sink)
        table = open_table(local_path(sink.target.path))
        if table is None or PlainWrite(range_name(query, start, end)).is_in(table):
            continue
        shared = earlier_overlap(table, query, start, end)
        if shared is not None:
            partition = shared.partition
            findings.add(
                sink.location,
                f"an earlier backfill has written offsets {shared.start} to {shared.end - 1} of "
                f"{partition}, and this one is to read {start[partition]} to "
                f"{end[partition] - 1}: choose a "
                "range beside it, by offsets if times have come to mean others, or write them "
                "twice with `--again`",
            )


def _is_written(sink: Sink, name: str) -> bool:
    if not isinstance(sink.target, DeltaTarget):
        return False
    table = open_table(local_path(sink.target.path))
    return table is not None and PlainWrite(name).is_in(table)


def _filled(spec: Spec, sink: Sink, held: list[Range], rows: int | None) -> Filled:
    has_windows = any(isinstance(step, Window) for step in spec.steps_of(sink))
    notes = [_EDGES] if has_windows and isinstance(sink.target, TopicTarget | DeltaTarget) else []
    if rows is not None:
        notes += _repeats(held)
    if rows is not None and _writes_twice(sink) and local(spec.checkpoint_of(sink)) is None:
        notes.append(
            f"the checkpoint {spec.checkpoint_of(sink)} cannot be looked into from here: what the "
            "pipeline itself has written of this range is there twice"
        )
    return Filled(
        sink=sink.name,
        rows=rows,
        repeatable=isinstance(sink.target, DeltaTarget),
        note="; ".join(notes),
    )


def _repeats(held: list[Range]) -> list[str]:
    """What to say of rows that the pipeline itself has written too."""
    if not held:
        return []
    each = ", ".join(f"{found.partition} below offset {found.end}" for found in held)
    return [f"the pipeline itself has written {each}: those rows are there twice now"]


def _writes_twice(sink: Sink) -> bool:
    """Whether rows that are there already are added once more."""
    if isinstance(sink.target, DeltaTarget):
        return sink.target.upsert is None
    return isinstance(sink.target, TopicTarget)


def _held(
    spec: Spec,
    sink: Sink,
    servers: str,
    start: Offsets,
    end: Offsets,
    findings: Findings | None,
) -> list[Range]:
    """What the checkpoint has; one that nobody can read is told, where there are findings."""
    try:
        return held_by_checkpoint(spec, sink, servers, start, end)
    except CheckpointUnreadable as error:
        if findings is not None:
            findings.add(
                sink.location,
                f"{error}: so nobody can tell what of this range the pipeline itself has written. "
                "Bring the checkpoint back, or write rows that may be there with `--again`",
            )
        return []


def held_by_checkpoint(
    spec: Spec, sink: Sink, servers: str, start: Offsets, end: Offsets
) -> list[Range]:
    """What of a range the pipeline's own query has read, or is about to read once more.

    From where it began, as far as that can still be told: otherwise from the start of the topics,
    since a refusal can be overruled, and rows that are there twice cannot be told apart.
    """
    checkpoint = spec.checkpoint_of(sink)
    reached = planned_up_to(checkpoint)
    if not reached:
        return []
    begun = _beginning(spec, checkpoint, servers)
    found = []
    for partition in sorted(end):
        first = max(start[partition], begun.get(partition, 0))
        last = min(end[partition], reached.get(partition, 0))
        if first < last:
            found.append(Range(partition, first, last))
    return found


def _beginning(spec: Spec, checkpoint: str, servers: str) -> Offsets:
    given = {**dict(spec.source.options), **dict(spec.source.starting)}
    chosen = source_options({**given, "kafka.bootstrap.servers": servers}, streaming=True)
    if isinstance(chosen.starting, Mapping) and not chosen.start_moves:
        return chosen.starting
    return begun_at(checkpoint) or {}


def _refuse_held(sink: Sink, held: list[Range], findings: Findings) -> None:
    if not held:
        return
    findings.add(
        sink.location,
        f"the pipeline itself has written offsets of this range ({_listed(held)}): choose a range "
        "beside them, or write them twice with `--again`",
    )


def _refuse_dead_letters(
    spec: Spec, servers: str, start: Offsets, end: Offsets, findings: Findings
) -> None:
    """Bad records go to their topic by the query of the first sink, and by every backfill."""
    sent = _held(spec, spec.sinks[0], servers, start, end, findings)
    if sent:
        findings.add(
            spec.location_of("on_bad_record"),
            f"the pipeline itself has sent the bad records of this range ({_listed(sent)}) to "
            f"{spec.dead_letter_topic}: choose a range beside them, or send them twice with "
            "`--again`",
        )


def _listed(ranges: list[Range]) -> str:
    return ", ".join(f"{each.partition}: {each.start} to {each.end - 1}" for each in ranges)
