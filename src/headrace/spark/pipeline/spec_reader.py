"""A pipeline's file as a `Spec`, or all that is wrong with it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.core.errors import InvalidConfig
from headrace.spark.options import Subscription, source_options
from headrace.spark.pipeline import sections
from headrace.spark.pipeline.compiler import STREAM_OPTIONS
from headrace.spark.pipeline.document import (
    START,
    Findings,
    Listing,
    Location,
    Scalar,
    Table,
    parse,
)
from headrace.spark.pipeline.fields import Fields
from headrace.spark.pipeline.model import OnLate, Source, Spec
from headrace.spark.pipeline.read_sinks import NAME, read_sinks
from headrace.spark.pipeline.read_source import read_source
from headrace.spark.pipeline.read_steps import located, read_steps
from headrace.spark.pipeline.rules import ANY_BROKER, refuse_impossible, refuse_loops
from headrace.spark.pipeline.value_columns import refuse_hidden_columns

_ON_LATE: Final = "count, fail or {fail: {at_most: 5 %}}"


def read(text: str, file: str, base: Path, variables: Mapping[str, str]) -> Spec:
    """The pipeline that a text describes; raises PipelineInvalid with every problem in it."""
    findings = Findings(file)
    fields = Fields(parse(text, variables, findings), sections.PIPELINE, findings)
    name = fields.text("name") or "pipeline"
    if not NAME.fullmatch(name):
        fields.wrong("name", f"{name!r} must be made of a-z, 0-9, -, _ and .")
    every, once = _trigger(fields)
    source_fields = fields.section("source", sections.SOURCE)
    source = read_source(source_fields or Fields(Table(START, {}), sections.SOURCE, Findings(file)))
    dead_letter = _dead_letter(fields, source)
    spec = Spec(
        name=name,
        bootstrap_servers=fields.text("bootstrap_servers"),
        checkpoint=located(fields.text("checkpoint") or "", base),
        every=every,
        once=once,
        source=source,
        dead_letter_topic=dead_letter,
        on_late=_on_late(fields),
        settings=_settings(fields),
        steps=read_steps(fields.listing("steps"), base, findings),
        sinks=read_sinks(fields.listing("sinks"), base, findings),
        locations=_locations(fields),
    )
    if fields.has("sinks") and not fields.listing("sinks"):
        fields.wrong("sinks", "is empty; a pipeline has at least one sink")
    findings.refuse()
    subscription = _check_options(spec, findings)
    if subscription is not None:
        refuse_loops(spec, subscription, findings)
    refuse_hidden_columns(source, findings)
    refuse_impossible(spec, findings)
    findings.refuse()
    return spec


def _trigger(fields: Fields) -> tuple[str | None, bool]:
    node = fields.node("trigger")
    if isinstance(node, Scalar):
        if node.text != "available-now":
            fields.wrong("trigger", f"{node.text!r} is not available-now or {{every: 2 seconds}}")
        return None, True
    every = fields.section("trigger", sections.TRIGGER)
    return (None if every is None else every.duration("every")), False


def _dead_letter(fields: Fields, source: Source) -> str | None:
    node = fields.node("on_bad_record")
    if node is None:
        return None
    if isinstance(node, Scalar):
        if node.text != "column":
            fields.wrong("on_bad_record", f"{node.text!r} is not column or {{dead_letter: TOPIC}}")
        return None
    letters = fields.section("on_bad_record", sections.ON_BAD_RECORD)
    if source.value.format == "raw":
        fields.wrong("on_bad_record", "raw values are never bad: give source.value a format")
    return None if letters is None else letters.text("dead_letter")


def _on_late(fields: Fields) -> OnLate:
    node = fields.node("on_late")
    if node is None or isinstance(node, Listing):
        if fields.has("on_late"):
            fields.wrong("on_late", f"is not {_ON_LATE}")
        return OnLate()
    if isinstance(node, Scalar):
        if node.text not in ("count", "fail"):
            fields.wrong("on_late", f"{node.text!r} is not {_ON_LATE}")
        return OnLate(at_most=0.0 if node.text == "fail" else None)
    if "topic" in node.entries:
        fields.wrong(
            "on_late",
            "topic: late rows cannot be kept yet, since a streaming query has one sink; they are "
            f"counted and left out, so use {_ON_LATE}",
        )
        return OnLate()
    found = fields.section("on_late", sections.ON_LATE)
    fail = None if found is None else found.section("fail", sections.ON_LATE_FAIL)
    return OnLate(at_most=None if fail is None else fail.share("at_most"))


def _settings(fields: Fields) -> tuple[tuple[str, str], ...]:
    node = fields.node("settings")
    for name, entry in node.entries.items() if isinstance(node, Table) else ():
        if not re.match(r"spark\.", name):
            fields.findings.add(
                entry.location, f"{name!r} is no setting of Spark: those are spark.*"
            )
    return fields.pairs("settings")


def _locations(fields: Fields) -> tuple[tuple[str, Location], ...]:
    """Where the keys of the pipeline stand, and those of its settings."""
    node = fields.node("settings")
    settings = node.entries if isinstance(node, Table) else {}
    return (
        *((key, entry.location) for key, entry in fields.table.entries.items()),
        *((f"settings.{name}", entry.location) for name, entry in settings.items()),
    )


def _check_options(spec: Spec, findings: Findings) -> Subscription | None:
    """Let the source itself judge its options; it names the one that is wrong."""
    subscription = None
    source = spec.source
    given = {**dict(source.options), "kafka.bootstrap.servers": ANY_BROKER}
    for streaming, bounds in ((True, source.starting), (False, source.ending)):
        options = {**given, **dict(bounds)}
        if not streaming:
            options = {name: text for name, text in options.items() if name not in STREAM_OPTIONS}
        try:
            subscription = source_options(options, streaming=streaming).subscription
        except InvalidConfig as error:
            findings.add(source.location_of_option(_named(str(error), options)), str(error))
            return None
    return subscription


def _named(message: str, options: Mapping[str, str]) -> str:
    """The option that a message is about: what is allowed instead comes later in it."""
    found = [name for name in options if name in message]
    return min(found, key=lambda name: (message.index(name), -len(name)), default="")
