"""A pipeline's queries in a session: started together, watched together, stopped together."""

import time
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.core.errors import ErrorCode, HeadraceError
from headrace.spark.pipeline.calls import done
from headrace.spark.pipeline.checking import check_stream
from headrace.spark.pipeline.compiling import streaming_program
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.frames import (
    check_schema,
    configured,
    frame_of,
    names_for,
    reason,
    refuse_over_connect,
    told_at,
)
from headrace.spark.pipeline.model import Spec

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
    with configured(spark, spec, findings):
        check_schema(spec, findings)
        findings.refuse()
        frames = [frame_of(program, spark, findings) for program in programs]
        findings.refuse()
        try:
            for program, frame in zip(programs, frames, strict=True):
                names = {**names_for(spark), program.frame: frame}
                with told_at(program.write.place, findings):
                    queries[spec.query_name(program.sink)] = done(program.write.value, names)
        except BaseException:
            Run(queries).stop()
            raise
    return Run(queries)
