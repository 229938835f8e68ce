"""Whose a checkpoint is: a query of another name, or of other topics, must not go on with it.

Spark knows queries by numbers of its own, and takes any query for the one whose checkpoint it is
given: it plans a batch from offsets that mean something else, fails at best, and leaves that batch
behind for the query that was there before. So a small file beside Spark's tells the query.
"""

import json
from pathlib import Path
from typing import Final

from headrace.spark.options import source_options
from headrace.spark.pipeline.checkpoints import newest_topics
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.model import Sink, Spec
from headrace.spark.progress.atomic_write import replace_text
from headrace.spark.watermarks import local

OWNER_FILE: Final = "headrace.json"


def record_owner(checkpoint: str, query: str) -> None:
    """Write down whose checkpoint this is; nothing where it lies on other disks."""
    directory = local(checkpoint)
    if directory is None or (directory / OWNER_FILE).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    replace_text(directory / OWNER_FILE, json.dumps({"query": query}) + "\n")


def refuse_others(spec: Spec, servers: str, findings: Findings) -> None:
    """Tell of checkpoints that belong to another pipeline; those of before the mark by topics."""
    for sink in spec.sinks:
        checkpoint = spec.checkpoint_of(sink)
        said = _other_query(checkpoint, spec.query_name(sink)) or _other_topics(spec, sink, servers)
        if said is not None:
            findings.add(
                sink.location,
                f"the checkpoint {checkpoint} {said}: give each pipeline a checkpoint of its own",
            )


def _other_query(checkpoint: str, query: str) -> str | None:
    directory = local(checkpoint)
    if directory is None:
        return None
    owner = _owner(directory / OWNER_FILE)
    if owner is None or owner == query:
        return None
    return (
        f"is that of the query {owner}, and this is {query} (if it was only renamed, remove "
        f"{directory / OWNER_FILE})"
    )


def _owner(mark: Path) -> str | None:
    try:
        told = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    owner = told.get("query") if isinstance(told, dict) else None
    return owner if isinstance(owner, str) else None


def _other_topics(spec: Spec, sink: Sink, servers: str) -> str | None:
    given = {**dict(spec.source.options), **dict(spec.source.starting)}
    chosen = source_options({**given, "kafka.bootstrap.servers": servers}, streaming=True)
    read = newest_topics(spec.checkpoint_of(sink))
    if not read or any(chosen.subscription.reads(topic) for topic in read):
        return None
    # Whoever may go on without what was deleted may also be told to read something else.
    return f"is of a query that reads {', '.join(read)}" if chosen.fail_on_data_loss else None
