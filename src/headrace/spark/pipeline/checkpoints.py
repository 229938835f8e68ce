"""What a checkpoint tells about a query's past, and what its sink tells when it is gone."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.client import TopicPartition
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.spark.delta_table import (
    QueryBatch,
    RowsOfOthers,
    TableUnreadable,
    WrittenByOtherQuery,
    local_path,
    open_table,
)
from headrace.spark.offset_resolver import OffsetResolver
from headrace.spark.offsets import Offsets, offsets_from
from headrace.spark.options import source_options
from headrace.spark.pipeline.compiler import group_of
from headrace.spark.pipeline.document import Findings
from headrace.spark.pipeline.model import DeltaTarget, ParquetTarget, Sink, Spec
from headrace.spark.watermarks import local

FILE_SINK_LOG = "_spark_metadata"


class CheckpointUnreadable(HeadraceError):
    """A file of a checkpoint is cut short, or not of a query that reads topics."""

    code = ErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that a query has finished, and when (seconds since 1970)."""

    number: int
    at: float


def last_batch(checkpoint: str) -> Batch | None:
    """The last batch that a checkpoint has as finished; None if it has none."""
    directory = local(checkpoint)
    numbers = [] if directory is None else _numbers(directory / "commits")
    if directory is None or not numbers:
        return None
    newest = max(numbers)
    return Batch(newest, (directory / "commits" / str(newest)).stat().st_mtime)


def planned_up_to(checkpoint: str) -> Offsets:
    """How far the batches of a checkpoint go, finished or to be done again; {} without one.

    Of each partition what the newest batch says that has it: a batch planned by somebody else's
    query, or without a topic for a while, does not undo what was written before. Raises
    CheckpointUnreadable.
    """
    directory = local(checkpoint)
    found: dict[TopicPartition, int] = {}
    for batch in sorted([] if directory is None else _numbers(directory / "offsets")):
        found.update(_end_of(checkpoint, batch))
    return found


def newest_topics(checkpoint: str) -> list[str]:
    """The topics of the newest batch; none where that cannot be told."""
    directory = local(checkpoint)
    numbers = [] if directory is None else _numbers(directory / "offsets")
    try:
        newest = _end_of(checkpoint, max(numbers)) if numbers else {}
    except CheckpointUnreadable:
        return []
    return sorted({each.topic for each in newest})


def begun_at(checkpoint: str) -> Offsets | None:
    """Where a query began that looked for its beginning first; None if nobody can tell any more.

    The first batch of such a query is empty and ends where it begins. Spark keeps the newest
    hundred batches.
    """
    directory = local(checkpoint)
    if directory is None or not (directory / "offsets" / "0").exists():
        return None
    return _end_of(checkpoint, 0) or None


def _end_of(checkpoint: str, batch: int) -> Offsets:
    directory = local(checkpoint)
    assert directory is not None
    path = directory / "offsets" / str(batch)
    try:
        told = path.read_text().splitlines()
        return offsets_from(json.loads(told[2]))  # after Spark's version and what it adds
    except (OSError, ValueError, IndexError, AttributeError, HeadraceError) as error:
        raise CheckpointUnreadable(f"{path} cannot be read: {error}") from error


def has_past(checkpoint: str) -> bool:
    """Whether a query has begun a batch here; one that cannot be looked into is taken to."""
    directory = local(checkpoint)
    return directory is None or bool(_numbers(directory / "offsets"))


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(each.name) for each in directory.iterdir() if each.name.isdigit()]


def refuse_lost(spec: Spec, servers: str, findings: Findings) -> None:
    """Tell of sinks and groups that have a past while the checkpoint has none.

    Such a query would begin at `from` again: rows would be written twice, or, by Spark's file
    sink, taken for written and left out.
    """
    for sink in spec.sinks:
        checkpoint = spec.checkpoint_of(sink)
        try:
            table = (
                open_table(local_path(sink.target.path))
                if isinstance(sink.target, DeltaTarget)
                else None
            )
        except TableUnreadable as error:
            findings.add(sink.location, str(error))
            continue
        damage = _damage(checkpoint)
        if damage is not None:
            findings.add(sink.location, damage)
            continue
        if has_past(checkpoint):
            continue
        said = None
        if isinstance(sink.target, DeltaTarget):
            said = _table_past(sink.target, table)
        elif isinstance(sink.target, ParquetTarget):
            said = _files_past(sink.target)
        said = said or _group_past(spec, sink, servers)
        if said is not None:
            findings.add(sink.location, f"the checkpoint {checkpoint} is empty, but {said}")


def _table_past(target: DeltaTarget, table: Any) -> str | None:
    if target.other_queries == "append":
        return None
    try:
        if table is not None:
            QueryBatch("", 0, replaces=target.mode == "complete").is_in(table)
    except RowsOfOthers:
        return (
            f"the table {target.path} has rows that no query has written, and mode complete would "
            "replace all of them: choose another path, or set other_queries: append if they may go"
        )
    except WrittenByOtherQuery:
        return (
            f"the table {target.path} has rows of an earlier query: if the checkpoint was lost, "
            "bring it back as it was last (the table refuses an older copy), or rows are written "
            "twice; if several queries shall write to the table, set other_queries: append"
        )
    return None


def _files_past(target: ParquetTarget) -> str | None:
    directory = local(target.path)
    if directory is None:
        return None
    if not _numbers(directory / FILE_SINK_LOG):
        found = _first_file(directory)
        if found is None:
            return None
        return (
            f"{found} is there, which this pipeline has not written: readers heed the list of its "
            "own files, and would no longer see any other. Choose an empty directory"
        )
    return (
        f"{target.path}/{FILE_SINK_LOG} has batches of an earlier query: Spark would take the "
        "first batches of a new one for those and leave their rows out, and those of an older "
        "copy too. Bring the checkpoint back as it was last, or choose another path"
    )


def _first_file(directory: Path) -> Path | None:
    """A file that a reader of the directory sees."""
    if directory.is_file():
        return directory
    for root, names, files in os.walk(directory):
        names[:] = [each for each in names if not each.startswith(("_", "."))]
        for name in files:
            if not name.startswith(("_", ".")):
                return Path(root, name)
    return None


def _damage(checkpoint: str) -> str | None:
    """What keeps Spark from taking a query for the one that was here before."""
    directory = local(checkpoint)
    if directory is None or not (directory / "metadata").exists():
        return None
    try:
        json.loads((directory / "metadata").read_text())
    except (OSError, ValueError) as error:
        return (
            f"{directory / 'metadata'} is damaged ({error}): bring the checkpoint back as it was "
            "last, or remove it if nothing was written yet"
        )
    return None


def _group_past(spec: Spec, sink: Sink, servers: str) -> str | None:
    """A group's offsets are written by the query, and lie elsewhere than its checkpoint."""
    if spec.source.commit_group is None:
        return None
    group = group_of(spec, sink)
    options = {**dict(spec.source.options), **dict(spec.source.starting)}
    chosen = source_options({**options, "kafka.bootstrap.servers": servers}, streaming=True)
    resolver = OffsetResolver(chosen)
    try:
        start, there = resolver.resolve(chosen.starting, "starting"), resolver.committed(group)
    except HeadraceError:
        return None  # the query will say what is wrong, and where
    finally:
        resolver.close()
    moved = [each for each in sorted(start) if there.get(each, start[each]) != start[each]]
    if not moved:
        return None
    stands = {each: there.get(each, offset) for each, offset in start.items()}
    return (
        f"the group {group} shows that this pipeline has read {len(moved)} of {len(start)} "
        "partitions before: bring back the newest checkpoint, or go on where the group stands, "
        f"with `{offsets_as_from(stands)}`; to begin anew, and write rows again, delete the group "
        "or choose another"
    )


def offsets_as_from(offsets: Offsets) -> str:
    """Offsets as a pipeline's source has them, to be copied."""
    topics: dict[str, list[str]] = {}
    for partition in sorted(offsets):
        numbered = f"{partition.partition}: {offsets[partition]}"
        topics.setdefault(partition.topic, []).append(numbered)
    listed = ", ".join(f"{topic}: {{{', '.join(each)}}}" for topic, each in topics.items())
    return f"from: {{offsets: {{{listed}}}}}"
