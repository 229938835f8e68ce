"""A pipeline's queries in a session: started together, watched together, stopped together."""

import time
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.core.errors import ErrorCode, HeadraceError
from headrace.spark.pipeline.calls import evaluate
from headrace.spark.pipeline.checkpoint_owner import record_owner
from headrace.spark.pipeline.checks import check_stream
from headrace.spark.pipeline.compiler import streaming_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.frames import (
    check_schema,
    configured,
    frame_of,
    names_for,
    raised_at,
    reason,
    refuse_over_connect,
)
from headrace.spark.pipeline.late import may_lose_late
from headrace.spark.pipeline.model import OnLate, Spec
from headrace.spark.planner_environment import define_planner_variables
from headrace.spark.progress import Watching, watch
from headrace.spark.progress.late import LateRows, percent

_POLL_SECONDS: Final = 0.2


class QueryFailed(HeadraceError):
    """A query of a pipeline ended with an error."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class TooManyLateRows(HeadraceError):
    """More rows came too late than `on_late` allows. The batch that told so is written."""

    code = ErrorCode.INVALID_REQUEST


class Run:
    """Queries that belong together: if one fails, the others are stopped."""

    def __init__(
        self,
        queries: Mapping[str, StreamingQuery],
        *,
        watching: Watching | None = None,
        on_late: OnLate | None = None,
    ) -> None:
        self.queries = dict(queries)
        self._watching = watching
        self._on_late = on_late or OnLate()

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

    @property
    def late(self) -> dict[str, LateRows]:
        """By query, rows that came too late so far; queries that leave none out are not in it."""
        return {} if self._watching is None else self._watching.late

    def refuse_late(self) -> None:
        """Raise TooManyLateRows where more came too late than `on_late` allows."""
        most = self._on_late.at_most
        if most is None:
            return
        told = {name: late for name, late in self.late.items() if late.share > most}
        if told:
            allowed = "none may" if most == 0 else f"at most {percent(most)} may"
            said = "\n".join(f"{name}: {late}" for name, late in sorted(told.items()))
            raise TooManyLateRows(
                f"{said}; {allowed} (on_late). What did not come too late is written, the last "
                "batch included"
            )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all queries have ended; False if they have not in time.

        Raises QueryFailed when one of them fails, and TooManyLateRows when more rows came too late
        than `on_late` allows, once the others are stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            failed = self.failed
            if failed:
                self.stop()
                raise QueryFailed("\n".join(f"{name}: {why}" for name, why in failed.items()))
            if not self.is_active:
                self._await_last_events()
                self.refuse_late()
                return True
            try:
                self.refuse_late()
            except TooManyLateRows:
                self.stop()
                raise
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def stop(self, patience: float = 0) -> None:
        """Stop all queries, each between two batches if that comes within `patience` seconds.

        A batch that is cut off is done again by the next run.
        """
        deadline = time.monotonic() + patience
        batches = {name: _batch(query) for name, query in self.queries.items()}
        left = dict(self.queries)
        while left:
            for name, query in list(left.items()):
                between = not query.isActive or not query.status["isTriggerActive"]
                if between or _batch(query) != batches[name] or time.monotonic() >= deadline:
                    query.stop()
                    del left[name]
            if left:
                time.sleep(_POLL_SECONDS)
        self._await_last_events()

    def _await_last_events(self) -> None:
        """Spark tells of batches some time after they ended."""
        if self._watching is not None:
            self._watching.close()


def _batch(query: StreamingQuery) -> int:
    """The last batch that has ended."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def start(spec: Spec, spark: SparkSession, servers: str, *, once: bool, findings: Findings) -> Run:
    """Start every sink's query; if one of them is wrong none is left running."""
    programs = [streaming_program(spec, sink, servers, once=once) for sink in spec.sinks]
    queries: dict[str, StreamingQuery] = {}
    check_stream(spec, servers, findings)
    refuse_over_connect(spec, spark, findings)
    findings.refuse()
    late = {spec.query_name(sink) for sink in spec.sinks if may_lose_late(spec, sink)}
    watching = None
    with configured(spark, spec, findings):
        check_schema(spec, findings)
        findings.refuse()
        frames = [frame_of(program, spark, findings) for program in programs]
        findings.refuse()
        define_planner_variables(spark)  # whoever made the session
        try:
            if late:  # before the queries start, so that their first batches are heard of too
                watching = watch(spark, names=late, terminal=False)
            for program, frame in zip(programs, frames, strict=True):
                names = {**names_for(spark), program.frame: frame}
                with raised_at(program.write.location, findings):
                    if getattr(spark, "_jvm", None) is not None:  # else on the server's disks
                        record_owner(
                            spec.checkpoint_of(program.sink), spec.query_name(program.sink)
                        )
                    queries[spec.query_name(program.sink)] = evaluate(program.write.value, names)
        except BaseException:
            Run(queries, watching=watching).stop()
            raise
    return Run(queries, watching=watching, on_late=spec.on_late)
