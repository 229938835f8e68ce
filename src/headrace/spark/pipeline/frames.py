"""A program's lines carried out in a session; what Spark refuses is told at its line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark import upsert
from headrace.spark.late_rows import count_late
from headrace.spark.pipeline.calls import evaluate
from headrace.spark.pipeline.compiler import Line, Program
from headrace.spark.pipeline.document import Findings, Location, PipelineInvalid
from headrace.spark.pipeline.functions import load_function, load_processor
from headrace.spark.pipeline.model import DeltaTarget, Spec, Sql
from headrace.spark.pipeline.steps import INPUT
from headrace.spark.pipeline.tables import read_table
from headrace.spark.reasons import reason_in
from headrace.spark.sink import each_batch

# PySpark logs every refusal with the whole trace, beside raising it. Its logger is of a class of
# its own, which a plain `getLogger` would get ahead of.
_REFUSALS: Final = PySparkLogger.getLogger("SQLQueryContextLogger")
_NAMED: Final = re.compile(r"(?:name|routine) `([^`]+)`")
_POSITION: Final = re.compile(r"\(?line (\d+),? pos (\d+)\)?")


def names_for(spark: SparkSession) -> dict[str, Any]:
    """What the calls of a program refer to."""
    return {
        "spark": spark,
        "F": F,
        "count_late": count_late,
        "each_batch": each_batch,
        "load_function": load_function,
        "load_processor": load_processor,
        "read_table": read_table,
        "upsert": upsert,
    }


def frame_of(program: Program, spark: SparkSession, findings: Findings) -> DataFrame | None:
    """The frame that a program makes, or None where Spark refuses a line of it."""
    names = names_for(spark)
    needs_view = any(isinstance(step, Sql) for step in program.steps)
    if needs_view and not _may_create_view(program, spark, findings):
        return None
    try:
        with without_traces():
            for line in program.lines:
                if not _execute(line, names, findings):
                    return None
    finally:
        if needs_view:
            spark.catalog.dropTempView(INPUT)
    frame: DataFrame = names[program.frame]
    return frame


def refuse_over_connect(spec: Spec, spark: SparkSession, findings: Findings) -> None:
    """What only a session of one's own can do."""
    if getattr(spark, "_jvm", None) is not None:
        return
    for sink in spec.sinks:
        for step in spec.steps_of(sink):
            if isinstance(step, Sql):  # a server looks at queries later, when the view is gone
                findings.add(step.location, "over Spark Connect a step cannot be `sql`: use select")
        if isinstance(sink.target, DeltaTarget) and sink.target.upsert is not None:
            findings.add(
                sink.target.upsert.location, "over Spark Connect a stream cannot be upserted"
            )


def _may_create_view(program: Program, spark: SparkSession, findings: Findings) -> bool:
    """Whether the name that a query sees its rows by is free."""
    if any(each.isTemporary and each.name == INPUT for each in spark.catalog.listTables()):
        location = next(step.location for step in program.steps if isinstance(step, Sql))
        findings.add(location, f"this session has a view {INPUT!r} of its own: drop or rename it")
        return False
    return True


def _execute(line: Line, names: dict[str, Any], findings: Findings) -> bool:
    """Carry out a line; one that fails but would not change the columns is passed over."""
    try:
        result = evaluate(line.value, names)
    except Exception as error:  # whatever a step of the user's raises is about that step
        findings.add(_location(line, error), reason(error))
        return line.keeps_columns
    if line.target is not None:
        names[line.target] = result
    return True


@contextmanager
def raised_at(location: Location, findings: Findings) -> Iterator[None]:
    """What Spark refuses or fails at in here is raised as a problem of this place."""
    try:
        with without_traces():
            yield
    except Exception as error:  # of Python's or of Java's side, with no common root
        findings.add(location, reason(error))
        raise PipelineInvalid(findings.problems) from error


def _location(line: Line, error: Exception) -> Location:
    """The line of the file; within a query of several lines, the one that Spark points at."""
    found = _POSITION.search(str(error))
    if line.first_line is None or found is None:
        return _location_within(line, str(error))
    return Location(line.first_line + int(found[1]) - 1, 1)


def _location_within(line: Line, said: str) -> Location:
    """The one part of a step that a message quotes, or that has the column that it names."""
    quoted = {place for text, place in line.parts if f"\n{text}\n" in said}
    name = _NAMED.search(said)
    if not quoted and name is not None:
        word = re.compile(rf"(?<!\w){re.escape(name[1])}(?!\w)")
        quoted = {place for text, place in line.parts if word.search(text)}
    return quoted.pop() if len(quoted) == 1 else line.location


def reason(error: Exception) -> str:
    """What is wrong in one line, without the plans and traces around it."""
    return reason_in(str(error)) or type(error).__name__


def check_schema(spec: Spec, findings: Findings) -> None:
    """The value's columns by themselves: within those of the record Spark points elsewhere."""
    value = spec.source.value
    if value.format != "json" or value.schema is None or value.schema.lstrip().startswith("{"):
        return
    try:
        with without_traces():
            StructType.fromDDL(value.schema)
    except PySparkException as error:
        findings.add(spec.source.location_of_option("valueSchema"), f"schema: {reason(error)}")


@contextmanager
def without_traces() -> Iterator[None]:
    """What Spark refuses is told by us, once."""
    before, _REFUSALS.disabled = _REFUSALS.disabled, True
    try:
        yield
    finally:
        _REFUSALS.disabled = before


def require_usable(spark: SparkSession, spec: Spec, findings: Findings) -> None:
    """A session that was made with a wrong setting fails at whatever is asked of it first."""
    try:
        _ = spark.conf
    except Exception as error:  # of Python's or of Java's side, with no common root
        named = next((name for name in spec.spark_settings if name in str(error)), "")
        findings.add(spec.location_of_setting(named), f"settings: {reason(error)}")
        raise PipelineInvalid(findings.problems) from error


def _set(spark: SparkSession, name: str, old: str | None, value: str) -> None:
    if spark.conf.isModifiable(name):
        # Even if it is the same: what a session is made with, Spark looks at when it is used.
        spark.conf.set(name, value)
    elif old != value:
        raise InvalidConfig(
            f"{name} is {old or 'not set'} in this session, and cannot be changed once a session "
            "has started"
        )


@contextmanager
def configured(spark: SparkSession, spec: Spec, findings: Findings) -> Iterator[None]:
    """A pipeline's settings while its queries start: each keeps those it was started with.

    Raises PipelineInvalid, at the lines of the settings that Spark does not take.
    """
    before: dict[str, str | None] = {}
    known = len(findings.problems)
    require_usable(spark, spec, findings)
    try:
        for name, value in spec.spark_settings.items():
            old = spark.conf.get(name, None)
            try:
                _set(spark, name, old, value)
            except Exception as error:  # of Python's or of Java's side, with no common root
                findings.add(spec.location_of_setting(name), f"settings: {reason(error)}")
                continue
            if old != value:
                before[name] = old
        if len(findings.problems) > known:
            raise PipelineInvalid(findings.problems)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
