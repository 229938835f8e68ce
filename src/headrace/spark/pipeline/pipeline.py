"""A pipeline that has been read, and what can be done with it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidConfig
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.model import Spec
from headrace.spark.pipeline.reading import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipeline.running import Run


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

    def start(
        self, spark: "SparkSession", once: bool = False, bootstrap_servers: str | None = None
    ) -> "Run":
        """Start its queries, until what is there now is done (`once`) or until they are stopped."""
        from headrace.spark.pipeline.running import start

        servers = self._servers(bootstrap_servers)
        return start(self.spec, spark, servers, once=once, findings=Findings(self.file))

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
