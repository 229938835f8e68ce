"""How far pipelines have come, from their checkpoints and groups; no Spark is started."""

from dataclasses import dataclass
from pathlib import Path

from headrace.client import Client
from headrace.core.errors import HeadraceError
from headrace.spark.options import source_options
from headrace.spark.pipeline.checkpoints import Batch, last_batch
from headrace.spark.pipeline.compiler import group_of
from headrace.spark.pipeline.pipeline import Pipeline

_ANSWER_MS = 5_000


@dataclass(frozen=True, slots=True)
class Row:
    """One sink of a pipeline; `lag` None where nobody can tell."""

    pipeline: str
    file: str
    source: str
    sink: str
    checkpoint: str
    last: Batch | None
    lag: int | None


def pipeline_files(paths: list[Path]) -> list[Path]:
    """The files themselves, and those of directories that end in .yaml or .yml."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = sorted(each for each in path.glob("*.y*ml") if each.suffix in (".yaml", ".yml"))
        found |= dict.fromkeys(inside if path.is_dir() else [path])
    return list(found)


def rows_of(pipeline: Pipeline, bootstrap_servers: str | None = None) -> list[Row]:
    """A row for each sink."""
    spec = pipeline.spec
    lags = _lags(pipeline, bootstrap_servers)
    options = dict(spec.source.options)
    wanted = ("subscribe", "subscribePattern", "assign")
    source = next(options[name] for name in wanted if name in options)
    return [
        Row(
            pipeline=spec.name,
            file=pipeline.file,
            source=source,
            sink=sink.name,
            checkpoint=spec.checkpoint_of(sink),
            last=last_batch(spec.checkpoint_of(sink)),
            lag=lags.get(group_of(spec, sink)),
        )
        for sink in spec.sinks
    ]


def _lags(pipeline: Pipeline, bootstrap_servers: str | None) -> dict[str, int]:
    """By group; empty where no offsets are published or no broker answers."""
    spec = pipeline.spec
    servers = bootstrap_servers or spec.bootstrap_servers
    if spec.source.commit_group is None or servers is None:
        return {}
    options = {**dict(spec.source.options), "kafka.bootstrap.servers": servers}
    options["kafka.default.api.timeout.ms"] = str(_ANSWER_MS)
    groups = [group_of(spec, sink) for sink in spec.sinks]
    try:
        with Client(source_options(options, streaming=True).client) as client:
            client.connect()
            found = client.admin.group_lags(groups, members=False)
    except HeadraceError:
        return {}
    return {group: sum(each.lag or 0 for each in lags) for group, lags in found.items() if lags}
