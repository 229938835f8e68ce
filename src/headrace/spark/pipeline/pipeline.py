"""A pipeline that has been read, and what can be done with it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidConfig
from headrace.spark.pipeline.document import Findings, Problem
from headrace.spark.pipeline.model import Spec
from headrace.spark.pipeline.spec_reader import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipeline.backfill import Backfill, BackfillPlan, Point
    from headrace.spark.pipeline.run import Run


class Pipeline:
    """One file: `spec` is what it says."""

    def __init__(self, spec: Spec, file: str) -> None:
        self.spec = spec
        self.file = file

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def query_names(self) -> tuple[str, ...]:
        """The names of its queries, one for each sink."""
        return tuple(self.spec.query_name(sink) for sink in self.spec.sinks)

    def with_settings(self, settings: Mapping[str, str]) -> "Pipeline":
        """The same with other settings of Spark; these go before the file's."""
        merged = {**dict(self.spec.settings), **settings}
        return Pipeline(replace(self.spec, settings=tuple(merged.items())), self.file)

    def plan(self, bootstrap_servers: str | None = None, once: bool = False) -> str:
        """The pipeline as a Python program, which does what `start` does."""
        from headrace.spark.pipeline.plan_text import plan

        return plan(self.spec, self._servers(bootstrap_servers), once=once)

    def check(
        self, spark: "SparkSession | None" = None, bootstrap_servers: str | None = None
    ) -> list[Problem]:
        """What would keep it from running; no record is read.

        Asks the broker for its topics, and `spark` whether it takes the steps; without a session
        these are not looked at.
        """
        from headrace.spark.pipeline.checks import check_frames, check_stream

        findings, servers = Findings(self.file), self._servers(bootstrap_servers)
        check_stream(self.spec, servers, findings)
        if spark is not None:
            check_frames(self.spec, spark, servers, findings)
        return findings.problems

    def require_broker(self, bootstrap_servers: str | None = None) -> None:
        """Raise BrokerUnreachable at once where no broker answers: Spark would try for long."""
        from headrace.client import Client
        from headrace.spark.options import source_options

        options = {**dict(self.spec.source.options), **dict(self.spec.source.starting)}
        options["kafka.bootstrap.servers"] = self._servers(bootstrap_servers)
        with Client(source_options(options, streaming=True).client) as client:
            client.connect()

    def require_startable(self, bootstrap_servers: str | None = None) -> None:
        """Raise what `start` would, as far as it is known without Spark, which takes its time."""
        from headrace.spark.pipeline.checks import check_stream

        self.require_broker(bootstrap_servers)
        findings = Findings(self.file)
        check_stream(self.spec, self._servers(bootstrap_servers), findings)
        findings.refuse()

    def require_settings(self, spark: "SparkSession") -> None:
        """Raise PipelineInvalid where a session was made with settings that Spark does not take."""
        from headrace.spark.pipeline.frames import require_usable

        require_usable(spark, self.spec, Findings(self.file))

    def require_fillable(
        self,
        since: "Point | None" = None,
        until: "Point | None" = None,
        *,
        sinks: Sequence[str] = (),
        again: bool = False,
        bootstrap_servers: str | None = None,
    ) -> "BackfillPlan":
        """What `backfill` would do; raises what it would, as far as it is known without Spark."""
        from headrace.spark.pipeline.backfill import check_backfill

        self.require_broker(bootstrap_servers)
        return check_backfill(
            self.spec,
            self._servers(bootstrap_servers),
            Findings(self.file),
            since=since,
            until=until,
            sinks=tuple(sinks),
            again=again,
        )

    def start(
        self, spark: "SparkSession", once: bool = False, bootstrap_servers: str | None = None
    ) -> "Run":
        """Start its queries, until what is there now is done (`once`) or until they are stopped."""
        from headrace.spark.pipeline.run import start

        servers = self._servers(bootstrap_servers)
        return start(self.spec, spark, servers, once=once, findings=Findings(self.file))

    def backfill(
        self,
        spark: "SparkSession",
        since: "Point | None" = None,
        until: "Point | None" = None,
        *,
        sinks: Sequence[str] = (),
        again: bool = False,
        bootstrap_servers: str | None = None,
    ) -> "Backfill":
        """Run the steps as a batch over a range of times or offsets, into these sinks (all).

        A Delta table takes a range once; a topic takes it each time. What the pipeline itself has
        written by its checkpoint is refused. `again` writes it all the same. Without `since` and
        `until` the range is that of the file.
        """
        from headrace.spark.pipeline.backfill import backfill

        return backfill(
            self.spec,
            spark,
            self._servers(bootstrap_servers),
            Findings(self.file),
            since=since,
            until=until,
            sinks=tuple(sinks),
            again=again,
        )

    def _servers(self, given: str | None) -> str:
        servers = given or self.spec.bootstrap_servers
        if servers is None:
            raise InvalidConfig(
                f"{self.file} has no bootstrap_servers",
                hint="set it there, or pass bootstrap_servers (--bootstrap-servers)",
            )
        return servers


def load(source: str | Path, variables: Mapping[str, str] | None = None) -> Pipeline:
    """A pipeline from a file, or from its text (which has several lines).

    `variables` stand for ${NAME} in it, the environment by default. Raises PipelineInvalid.
    """
    given = os.environ if variables is None else variables
    if isinstance(source, str) and "\n" in source:
        return Pipeline(read(source, "<text>", Path.cwd(), given), "<text>")
    path = Path(source)
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not a text in UTF-8") from error
    return Pipeline(read(text, str(source), path.absolute().parent, given), str(source))
