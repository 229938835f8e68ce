"""A pipeline's queries in a session: started together, watched together, stopped together."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it
from pyspark.sql.streaming.query import StreamingQuery

from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig
from headrace.spark.pipeline.calls import done
from headrace.spark.pipeline.compiling import Line, Program, streaming_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.functions import load_function, load_processor
from headrace.spark.pipeline.model import Spec
from headrace.spark.pipeline.steps import INPUT
from headrace.spark.sink import each_batch

_POLL_SECONDS: Final = 0.2


class QueryFailed(HeadraceError):
    """A query of a pipeline ended with an error."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class Run:
    """Queries that belong together: if one fails, the others are stopped."""

    def __init__(self, queries: Mapping[str, StreamingQuery]) -> None:
        self.queries = dict(queries)

    @property
    def failed(self) -> dict[str, str]:
        """The queries that ended with an error, and what it was."""
        found = {}
        for name, query in self.queries.items():
            error = None if query.isActive else query.exception()
            if error is not None:
                found[name] = reason(error)
        return found

    @property
    def is_active(self) -> bool:
        return any(query.isActive for query in self.queries.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all queries have ended; False if they have not in time.

        Raises QueryFailed when one of them fails, once the others are stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            failed = self.failed
            if failed:
                self.stop()
                raise QueryFailed("\n".join(f"{name}: {why}" for name, why in failed.items()))
            if not self.is_active:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop all queries; what is under way is done again by the next run."""
        for query in self.queries.values():
            query.stop()


def start(spec: Spec, spark: SparkSession, servers: str, *, once: bool, findings: Findings) -> Run:
    """Start every sink's query; nothing is started if one of them is wrong."""
    programs = [streaming_program(spec, sink, servers, once=once) for sink in spec.sinks]
    queries: dict[str, StreamingQuery] = {}
    with configured(spark, spec):
        frames = [frame_of(program, spark, findings) for program in programs]
        findings.refuse()
        try:
            for program, frame in zip(programs, frames, strict=True):
                names = {**names_for(spark), program.frame: frame}
                queries[spec.query_name(program.sink)] = done(program.write.value, names)
        except BaseException:
            Run(queries).stop()
            raise
    return Run(queries)


def names_for(spark: SparkSession) -> dict[str, Any]:
    """What the calls of a program refer to."""
    return {
        "spark": spark,
        "F": F,
        "each_batch": each_batch,
        "load_function": load_function,
        "load_processor": load_processor,
    }


def frame_of(program: Program, spark: SparkSession, findings: Findings) -> DataFrame | None:
    """The frame that a program makes, or None where Spark refuses a line of it."""
    names = names_for(spark)
    try:
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
    except (PySparkException, InvalidConfig) as error:
        findings.add(line.place, reason(error))
        return line.keeps_columns
    if line.target is not None:
        names[line.target] = result
    return True


def reason(error: Exception) -> str:
    """What Spark says is wrong, without the plan and the traces behind it."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    return lines[0].partition(" SQLSTATE:")[0] if lines else type(error).__name__


@contextmanager
def configured(spark: SparkSession, spec: Spec) -> Iterator[None]:
    """The pipeline's settings while its queries start: each keeps those it was started with."""
    before: dict[str, str | None] = {}
    try:
        for name, value in spec.settings:
            old = spark.conf.get(name, None)
            if old == value:
                continue
            if not spark.conf.isModifiable(name):
                raise InvalidConfig(
                    f"settings: {name} is {old} in this session, which has it from its start on"
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
