"""Each step as calls on a frame."""

from dataclasses import dataclass, field
from typing import Final

from headrace.spark.options import LATE_BEFORE
from headrace.spark.pipeline.calls import Call, Expression, Get, Name, call, function, with_options
from headrace.spark.pipeline.model import (
    Dedup,
    Filter,
    Join,
    Python,
    Select,
    Sql,
    Stateful,
    Step,
    Window,
)

SPARK: Final = Name("spark")
FUNCTIONS: Final = Name("F")
INPUT: Final = "input"
_HOW: Final = {"left": "left", "inner": "inner", "semi": "left_semi", "anti": "left_anti"}
_TIME_MODES: Final = {
    "none": "None",
    "processing-time": "ProcessingTime",
    "event-time": "EventTime",
}


@dataclass(slots=True)
class Frames:
    """The frame that steps work on, batch or stream, its output mode, and its watermarks."""

    streaming: bool
    name: str
    mode: str = "append"
    watermarks: dict[str, str] = field(default_factory=dict)
    counts_late_at: Step | None = None
    """The step before which late rows are counted; up to it rows carry their watermark."""


Assigned = tuple[str | None, Expression, bool]


def step_calls(step: Step, frames: Frames) -> list[Assigned]:
    """What a step assigns, and whether the columns stay as they were."""
    frame = Name(frames.name)
    if frames.counts_late_at is step:
        frames.counts_late_at = None
        counted = (frames.name, _counted(step, frame), True)
        return [counted, *step_calls(step, frames)]
    match step:
        case Filter():
            return [(frames.name, call(frame, "where", step.condition), True)]
        case Select():
            expressions = step.expressions
            if frames.counts_late_at and not any(each.lstrip()[0] == "*" for each in expressions):
                expressions = (*expressions, LATE_BEFORE)
            return [(frames.name, call(frame, "selectExpr", *expressions), False)]
        case Sql():
            return _sql(step, frames)
        case Window():
            return [(frames.name, _window(step, frames), False)]
        case Dedup():
            return [(frames.name, _dedup(step, frames), True)]
        case Join():
            return _join(step, frames)
        case Python():
            return [(frames.name, _python(step, frames), False)]
        case Stateful():
            return [(frames.name, _stateful(step, frames), False)]


def _counted(step: Step, frame: Name) -> Call:
    """Rows that a step is going to leave out, counted; the column that tells them is gone then."""
    assert isinstance(step, Window | Dedup | Stateful)
    assert step.time is not None
    spans: list[tuple[str, str]] = []
    if isinstance(step, Window):
        given = {"size": step.size, "slide": step.slide, "session": step.session}
        spans = [(name, span) for name, span in given.items() if span is not None]
    return Call(None, "count_late", (frame, step.time), tuple(spans))


def _python(step: Python, frames: Frames) -> Call:
    if not frames.counts_late_at:
        loaded = function("load_function", step.function)
        return call(Name(frames.name), "mapInArrow", loaded, step.schema)
    loaded = function("load_function", step.function, LATE_BEFORE)
    schema = f"{LATE_BEFORE} timestamp, {step.schema}"
    return call(Name(frames.name), "mapInArrow", loaded, schema)


def _sql(step: Sql, frames: Frames) -> list[Assigned]:
    """Under the name `input` for as long as Spark looks at the query, which is at once."""
    return [
        (None, call(Name(frames.name), "createOrReplaceTempView", INPUT), True),
        (frames.name, call(SPARK, "sql", step.query), False),
        (None, call(Get(SPARK, "catalog"), "dropTempView", INPUT), True),
    ]


def _watermarked(frame: Expression, time: str, watermark: str | None, frames: Frames) -> Expression:
    """A watermark once: Spark takes no second one on the same column, and a batch has none."""
    if watermark is None or not frames.streaming or time in frames.watermarks:
        return frame
    frames.watermarks[time] = watermark
    return call(frame, "withWatermark", time, watermark)


def _window(step: Window, frames: Frames) -> Call:
    frame = _watermarked(Name(frames.name), step.time, step.watermark, frames)
    if step.session is not None:
        window = call(call(FUNCTIONS, "session_window", step.time, step.session), "alias", "window")
    else:
        slide = () if step.slide is None else (step.slide,)
        window = call(FUNCTIONS, "window", step.time, step.size, *slide)
    grouped = call(frame, "groupBy", window, *step.by)
    columns = [call(call(FUNCTIONS, "expr", text), "alias", name) for name, text in step.agg]
    return call(grouped, "agg", *columns)


def _dedup(step: Dedup, frames: Frames) -> Call:
    frame = _watermarked(Name(frames.name), step.time, step.watermark, frames)
    method = "dropDuplicatesWithinWatermark" if frames.streaming else "dropDuplicates"
    return call(frame, method, step.by)


def _join(step: Join, frames: Frames) -> list[Assigned]:
    if step.format == "delta":
        table: Expression = function("read_table", SPARK, step.path)
    else:
        reader = with_options(call(Get(SPARK, "read"), "format", step.format), dict(step.options))
        table = call(reader, "load", step.path)
    joined = call(Name(frames.name), "join", Name("table"), step.on, _HOW[step.how])
    return [("table", table, False), (frames.name, joined, False)]


def _stateful(step: Stateful, frames: Frames) -> Call:
    frame: Expression = Name(frames.name)
    if step.time is not None:
        frame = _watermarked(frame, step.time, step.watermark, frames)
    return Call(
        call(frame, "groupBy", *step.by),
        "transformWithStateInPandas",
        named=(
            ("statefulProcessor", function("load_processor", step.function)),
            ("outputStructType", step.schema),
            ("outputMode", frames.mode.capitalize()),
            ("timeMode", _TIME_MODES[step.timers]),
        ),
    )
