"""What cannot work whatever the data is, told before Spark is started."""

import posixpath
from typing import Final

from pyspark.sql.types import StringType, StructType

from headrace.core.errors import InvalidConfig
from headrace.spark.delta_table import local_path
from headrace.spark.options import Subscription
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.model import (
    ConsoleTarget,
    Dedup,
    DeltaTarget,
    ParquetTarget,
    Sink,
    Spec,
    Stateful,
    Step,
    TopicTarget,
    Window,
)
from headrace.spark.sink_options import topic_sink_options

# Stands in where options are checked before it is known which broker is meant.
ANY_BROKER: Final = "127.0.0.1:9092"
# Rows as a topic takes them: enough to check options by.
ONE_TEXT: Final = StructType().add("value", StringType())


def refuse_impossible(spec: Spec, findings: Findings) -> None:
    """Output modes and watermarks that contradict each other, sinks that would mix."""
    paths: dict[str, Sink] = {}
    for sink in spec.sinks:
        steps = spec.steps_of(sink)
        _check_watermarks(steps, findings)
        _check_mode(sink, steps, findings)
        _check_target(sink, findings)
        if isinstance(sink.target, DeltaTarget | ParquetTarget):
            other = paths.setdefault(_plain(sink.target.path), sink)
            if other is not sink:
                findings.add(
                    sink.location, f"the sink of line {other.location.line} writes to this path too"
                )
            for each in spec.sinks:
                checkpoint = _plain(spec.checkpoint_of(each))
                if f"{_plain(sink.target.path)}/".startswith(f"{checkpoint}/"):
                    findings.add(
                        sink.location,
                        f"{checkpoint} is a checkpoint of this pipeline: choose another",
                    )


def _plain(path: str) -> str:
    """One spelling of a path: without the scheme of files, doubled slashes and steps back."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        scheme, rest = "", path.removeprefix("file:")
    plain = posixpath.normpath("/" + rest.lstrip("/"))
    return plain if scheme in ("", "file") else f"{scheme}:/{plain}"


def refuse_loops(spec: Spec, subscription: Subscription, findings: Findings) -> None:
    """What a pipeline writes, it must not read again: each record would come round for ever."""
    loop = "is read by the source, so that records would come round for ever: choose another"
    dead = spec.dead_letter_topic
    if dead is not None and subscription.reads(dead):
        findings.add(spec.location_of("on_bad_record"), f"dead_letter: topic {dead!r} {loop}")
    for sink in spec.sinks:
        if not isinstance(sink.target, TopicTarget) or not subscription.reads(sink.target.topic):
            continue
        own = dict(sink.target.options).get("kafka.bootstrap.servers")
        if own is None or own == spec.bootstrap_servers:
            findings.add(sink.location, f"topic {sink.target.topic!r} {loop}")


def _check_target(sink: Sink, findings: Findings) -> None:
    """Let the sink itself judge its options."""
    try:
        if isinstance(sink.target, TopicTarget):
            given = {"kafka.bootstrap.servers": ANY_BROKER, "topic": sink.target.topic}
            topic_sink_options({**given, **dict(sink.target.options)}, ONE_TEXT)
        if isinstance(sink.target, DeltaTarget):
            local_path(sink.target.path)
    except InvalidConfig as error:
        findings.add(sink.location, str(error))


def refuse_end(spec: Spec, findings: Findings) -> None:
    """A stream goes on; only a backfill has an end."""
    for name, _ in spec.source.ending:
        findings.add(
            spec.source.location_of_option(name),
            "`to` is for `headrace pipeline backfill`: a pipeline that runs has no end",
        )


def output_mode(sink: Sink) -> str:
    """The mode of a sink's query, in Spark's words."""
    match sink.target:
        case (
            TopicTarget(mode=mode) | ConsoleTarget(mode=mode) | DeltaTarget(upsert=None, mode=mode)
        ):
            return mode
        case DeltaTarget():
            return "update"
        case ParquetTarget():
            return "append"


def _check_watermarks(steps: tuple[Step, ...], findings: Findings) -> None:
    """Spark keeps one watermark for a column, the first; another one would have no effect."""
    known: dict[str, tuple[str, int]] = {}
    for step in steps:
        if not isinstance(step, Window | Dedup | Stateful) or step.time is None:
            continue
        if step.watermark is None:
            continue
        span, line = known.setdefault(step.time, (step.watermark, step.location.line))
        if span != step.watermark:
            findings.add(
                step.location,
                f"{step.time!r} has a watermark of {span} since line {line}: use the same here",
            )


def _check_mode(sink: Sink, steps: tuple[Step, ...], findings: Findings) -> None:
    windows = [step for step in steps if isinstance(step, Window)]
    if not windows:
        return
    last, mode = windows[-1], output_mode(sink)
    is_upsert = isinstance(sink.target, DeltaTarget) and sink.target.upsert is not None
    marked = {
        step.time
        for step in steps
        if isinstance(step, Window | Dedup | Stateful) and step.watermark is not None
    }
    for step in windows:
        if step.session is not None and not step.by:
            findings.add(
                step.location,
                "a session takes `by`: Spark keeps no sessions of all rows together in a stream",
            )
    if mode == "append" and last.time not in marked:
        findings.add(
            sink.location,
            "mode append gives out a window once it is over, which takes a watermark: set one in "
            f"the window of line {last.location.line}, or use another mode",
        )
    if mode == "update" and last.session is not None:
        said = "an upsert" if is_upsert else "mode update"
        findings.add(
            sink.location,
            f"{said} cannot follow sessions (line {last.location.line}): Spark gives a session out "
            "when it is over, in mode append",
        )
