"""A program's lines carried out in a session; what Spark refuses is told at its line."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark import upsert
from headrace.spark.pipeline.calls import done
from headrace.spark.pipeline.compiling import Line, Program
from headrace.spark.pipeline.document import Findings, Place
from headrace.spark.pipeline.functions import load_function, load_processor
from headrace.spark.pipeline.model import Spec
from headrace.spark.pipeline.steps import INPUT
from headrace.spark.pipeline.tables import read_table
from headrace.spark.sink import each_batch

# PySpark logs every refusal with the whole trace, beside raising it.
_REFUSALS: Final = logging.getLogger("SQLQueryContextLogger")
_POSITION: Final = re.compile(r"\(?line (\d+),? pos (\d+)\)?")


def names_for(spark: SparkSession) -> dict[str, Any]:
    """What the calls of a program refer to."""
    return {
        "spark": spark,
        "F": F,
        "each_batch": each_batch,
        "load_function": load_function,
        "load_processor": load_processor,
        "read_table": read_table,
        "upsert": upsert,
    }


def frame_of(program: Program, spark: SparkSession, findings: Findings) -> DataFrame | None:
    """The frame that a program makes, or None where Spark refuses a line of it."""
    names = names_for(spark)
    try:
        with without_traces():
            for line in program.lines:
                if not _do(line, names, findings):
                    return None
    finally:
        spark.catalog.dropTempView(INPUT)
    frame: DataFrame = names[program.frame]
    return frame


def _do(line: Line, names: dict[str, Any], findings: Findings) -> bool:
    """Carry out a line; one that fails but would not change the columns is passed over."""
    try:
        result = done(line.value, names)
    except Exception as error:  # whatever a step of the user's raises is about that step
        findings.add(_place(line, error), reason(error))
        return line.keeps_columns
    if line.target is not None:
        names[line.target] = result
    return True


def _place(line: Line, error: Exception) -> Place:
    """The line of the file; within a query of several lines, the one that Spark points at."""
    found = _POSITION.search(str(error))
    if line.first_line is None or found is None:
        return line.place
    return Place(line.first_line + int(found[1]) - 1, 1)


def reason(error: Exception) -> str:
    """What Spark says is wrong, without the plan and the traces behind it."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    if not lines:
        return type(error).__name__
    return lines[0].partition(" SQLSTATE:")[0].rstrip(";")


def check_schema(spec: Spec, findings: Findings) -> None:
    """The value's columns by themselves: within those of the record Spark points elsewhere."""
    value = spec.source.value
    if value.format != "json" or value.schema is None or value.schema.lstrip().startswith("{"):
        return
    try:
        with without_traces():
            StructType.fromDDL(value.schema)
    except PySparkException as error:
        findings.add(spec.source.place_of_option("valueSchema"), f"schema: {reason(error)}")


@contextmanager
def without_traces() -> Iterator[None]:
    """What Spark refuses is told by us, once."""
    before, _REFUSALS.disabled = _REFUSALS.disabled, True
    try:
        yield
    finally:
        _REFUSALS.disabled = before


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A pipeline's settings while its queries start: each keeps those it was started with."""
    before: dict[str, str | None] = {}
    try:
        for name, value in settings.items():
            old = spark.conf.get(name, None)
            if old == value:
                continue
            if not spark.conf.isModifiable(name):
                raise InvalidConfig(
                    f"settings: {name} is {old or 'not set'} in this session, and cannot be "
                    "changed once a session has started"
                )
            before[name] = old
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
