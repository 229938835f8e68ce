"""A pipeline as calls of Spark: for each sink how it reads, its steps, and how it writes.

Each sink is a query of its own, with its own reading of the topics and its own checkpoint. What
can be had only once is given to one of them: dead letters are sent by the first sink's query, and
the others leave the bad records out.
"""

import keyword
import re
from dataclasses import dataclass
from typing import Final

from headrace.spark.options import ERROR, LATE_BEFORE
from headrace.spark.pipeline.calls import Call, Expression, Get, Name, call, with_options
from headrace.spark.pipeline.document import Location
from headrace.spark.pipeline.late import counting_step
from headrace.spark.pipeline.model import (
    Pairs,
    Parts,
    Select,
    Sink,
    Spec,
    Sql,
    Step,
    TopicTarget,
    Window,
)
from headrace.spark.pipeline.rules import output_mode
from headrace.spark.pipeline.steps import SPARK, Frames, step_calls
from headrace.spark.pipeline.targets import batch_writer, prepared, stream_writer
from headrace.spark.pipeline.value_columns import record_columns

# Options of the source that a batch has no use for.
STREAM_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# Options of the source that its sinks need too, to be let in by the same brokers.
_SHARED: Final = ("kafka.security.", "kafka.ssl.")
# Names that a program has already.
_TAKEN: Final = (
    "spark",
    "F",
    "table",
    "query",
    "session",
    "upsert",
    "each_batch",
    "count_late",
    "load_function",
    "load_processor",
    "read_table",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One assignment or call of the program, and the line of the file that it is for."""

    target: str | None
    value: Expression
    location: Location
    keeps_columns: bool = False
    first_line: int | None = None
    parts: Parts = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What one sink takes: lines that make its frame, then the one that writes it."""

    sink: Sink
    steps: tuple[Step, ...]
    frame: str
    lines: tuple[Line, ...]
    write: Line


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a program reads; of several that read the same, one sends the dead letters."""

    reader: Expression
    servers: str
    sends_letters: bool


def streaming_program(spec: Spec, sink: Sink, servers: str, *, once: bool = False) -> Program:
    """The sink's streaming query, all but its start."""
    frames = Frames(streaming=True, name=variable(spec, sink), mode=output_mode(sink))
    reading = _Reading(Get(SPARK, "readStream"), servers, sends_letters=sink is spec.sinks[0])
    options = _source_options(spec, reading, spec.source.starting)
    if spec.source.commit_group is not None:
        options["commitGroup"] = group_of(spec, sink)
    checkpoint = spec.checkpoint_of(sink)
    frames.counts_late_at = counting_step(spec, sink)
    if frames.counts_late_at is not None:
        options["watermarkCheckpoint"] = checkpoint
    lines = _frame_lines(spec, sink, frames, reading, options)
    connection = connection_of(spec, sink, servers)
    written = stream_writer(sink, Name(frames.name), connection, checkpoint)
    written = call(written, "queryName", spec.query_name(sink))
    written = call(written, "option", "checkpointLocation", checkpoint)
    if once or spec.once:
        written = call(written, "trigger", availableNow=True)
    elif spec.every is not None:
        written = call(written, "trigger", processingTime=spec.every)
    query = f"{frames.name}_query"
    start = Line(query, call(written, "start"), sink.location)
    return Program(sink, spec.steps_of(sink), frames.name, lines, start)


def batch_program(
    spec: Spec,
    sink: Sink,
    servers: str,
    bounds: Pairs,
    *,
    once_as: str | None,
    sends_letters: bool,
) -> Program:
    """The sink's steps over a range of offsets, as one batch that is written under a name."""
    frames = Frames(streaming=False, name=variable(spec, sink))
    reading = _Reading(Get(SPARK, "read"), servers, sends_letters)
    options = _source_options(spec, reading, bounds)
    for name in STREAM_OPTIONS:
        options.pop(name, None)
    lines = _frame_lines(spec, sink, frames, reading, options)
    write = batch_writer(sink, Name(frames.name), connection_of(spec, sink, servers), once_as)
    return Program(sink, spec.steps_of(sink), frames.name, lines, Line(None, write, sink.location))


def connection_of(spec: Spec, sink: Sink, servers: str) -> dict[str, str]:
    """How a topic sink reaches its brokers: as the source does, unless it names others."""
    own = dict(sink.target.options) if isinstance(sink.target, TopicTarget) else {}
    if "kafka.bootstrap.servers" in own:
        return {}
    shared = {name: text for name, text in spec.source.options if name.startswith(_SHARED)}
    return {"kafka.bootstrap.servers": servers, **shared}


def variable(spec: Spec, sink: Sink) -> str:
    """The frame's name in the program: the sink's, as Python writes names."""
    names: dict[str, str] = {}
    for each in spec.sinks:
        found = re.sub(r"\W", "_", each.name)
        if found[0].isdigit() or found in _TAKEN or keyword.iskeyword(found):
            found = f"sink_{found}"
        while found in names.values():
            found += "_"
        names[each.name] = found
    return names[sink.name]


def group_of(spec: Spec, sink: Sink) -> str:
    """The consumer group that shows a sink's position: the pipeline's, where it has one sink."""
    group = spec.source.commit_group or ""
    return group if len(spec.sinks) == 1 else f"{group}-{sink.name}"


def _frame_lines(
    spec: Spec, sink: Sink, frames: Frames, reading: _Reading, options: dict[str, str]
) -> tuple[Line, ...]:
    source = with_options(call(reading.reader, "format", "headrace"), options)
    carried = () if frames.counts_late_at is None else (LATE_BEFORE,)
    columns = _with_columns(spec, call(source, "load"), reading, carried)
    lines = [Line(frames.name, columns, spec.source.location)]
    for step in spec.steps_of(sink):
        first_line = step.first_line if isinstance(step, Sql) else None
        parts = step.parts if isinstance(step, Select | Window) else ()
        lines += [
            Line(target, value, step.location, keeps, first_line, parts)
            for target, value, keeps in step_calls(step, frames)
        ]
    shaped = prepared(sink.target, Name(frames.name))
    if shaped is not None:
        lines.append(Line(frames.name, shaped, sink.location))
    return tuple(lines)


def _source_options(spec: Spec, reading: _Reading, bounds: Pairs) -> dict[str, str]:
    letters = spec.dead_letter_topic if reading.sends_letters else None
    names = ["value", *record_columns(spec.source, with_errors=letters is None)]
    options = {
        "kafka.bootstrap.servers": reading.servers,
        **dict(spec.source.options),
        **dict(bounds),
        "columns": ",".join(names),
    }
    if letters is not None:
        options["deadLetterTopic"] = letters
    return options


def _with_columns(spec: Spec, frame: Call, reading: _Reading, carried: tuple[str, ...]) -> Call:
    """The value's fields as columns, then those of the record."""
    value, has_letters = spec.source.value, spec.dead_letter_topic is not None
    if has_letters and not reading.sends_letters:
        frame = call(frame, "where", f"{ERROR} IS NULL")
    others = (*record_columns(spec.source, with_errors=not has_letters), *carried)
    if not value.has_fields:
        return call(frame, "select", "value", *others)
    if value.column is None:
        return call(frame, "select", "value.*", *others)
    named = call(frame, "withColumnRenamed", "value", value.column)
    return call(named, "select", value.column, *others)
