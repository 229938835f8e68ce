"""Rows into a Delta table, each batch exactly once, with nothing in the JVM.

    tasks: write Parquet files, not yet part of the table
    driver: one commit to the table's log names all files of the batch, and (query, batch)

The table remembers the last batch of every query, in the same commit as its files, so a batch
that is run again after a crash is seen to be there already. A commit that succeeded may look
failed to Spark, which then calls `abort`: the table is asked before anything is removed.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, TimestampType

from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig
from headrace.spark.delta_table import (
    CheckpointOlderThanTable,
    PlainWrite,
    QueryBatch,
    Write,
    check_fits,
    check_partitions,
    delta_schema,
    local_path,
    may_append_to_others,
    names,
    offsets_hash,
    open_table,
    retry_on_conflict,
    table_settings,
)
from headrace.spark.options import SOURCE_NAMES
from headrace.spark.sink_options import SPARK_NAMES, TOPIC_SINK_NAMES
from headrace.spark.table_files import Attempt, Stage, StagedFile, staged_by
from headrace.spark.workers import freeze_imports

logger = logging.getLogger(__name__)

TABLE_NAMES: Final = ("path", "partitionBy", "otherQueries", "onceAs")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Everything a writer needs; it pickles, and goes to the executors with the writer."""

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    overwrite: bool
    may_follow_others: bool
    makes_date: bool
    once_as: str | None
    checkpoint: str | None = None

    @property
    def root(self) -> Path:
        return Path(self.path)


class TablePathNotShared(HeadraceError):
    """What executors have written is not where the driver looks for it."""

    code = ErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What one task wrote, and for whom."""

    query: str
    writer: str
    files: tuple[StagedFile, ...]


def table_options(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool = False
) -> TableOptions:
    """The options and the columns, checked; raises InvalidConfig with what to change."""
    others = (*SOURCE_NAMES, *TOPIC_SINK_NAMES)
    given = table_settings(options, (*TABLE_NAMES, *SPARK_NAMES), other_side=others)
    if streaming and "onceas" in given:
        raise InvalidConfig("onceAs is for batch writes: each batch of a stream is written once")
    partition_by = names(given.get("partitionby", ""))
    makes_date = "date" in partition_by and "date" not in schema.names
    chosen = TableOptions(
        path=local_path(given["path"]),
        schema=_arrow(schema, makes_date=makes_date),
        partition_by=partition_by,
        overwrite=overwrite,
        may_follow_others=may_append_to_others(given),
        makes_date=makes_date,
        once_as=given.get("onceas"),
        checkpoint=given.get("checkpointlocation"),
    )
    check_partitions(chosen.schema, partition_by)
    check_fits(chosen.path, chosen.schema, partition_by, overwrite=overwrite)
    return chosen


def _arrow(schema: StructType, *, makes_date: bool) -> pa.Schema:
    if makes_date and (
        "timestamp" not in schema.names or schema["timestamp"].dataType != TimestampType()
    ):
        raise InvalidConfig(
            "partitionBy=date needs a column 'date', or a 'timestamp' to make it of"
        )
    fields = [each.with_nullable(True) for each in to_arrow_schema(schema, timezone="UTC")]
    return pa.schema([*fields, pa.field("date", pa.date32())] if makes_date else fields)


class _Writer:
    """What batch and stream have in common; made on the driver, once for each batch.

    The writer that commits or aborts a batch of a stream is not the one that its tasks had, but
    made like it, in another process: tasks tell in their messages whose files are theirs.
    """

    def __init__(self, options: TableOptions) -> None:
        self._options = options
        self._writer = uuid.uuid4().hex

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        freeze_imports()
        options = self._options
        attempt = _attempt(self._writer)
        with Stage(options.root, options.schema, options.partition_by, attempt) as stage:
            for batch in batches:
                if batch.num_rows:
                    stage.add(_with_date(batch) if options.makes_date else batch)
        return Staged(attempt.query, attempt.writer, tuple(stage.finished))

    def _publish(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        staged = [each for each in messages if isinstance(each, Staged)]
        files = [file for each in staged for file in each.files]
        write = self._write_of(staged, batch)
        retry_on_conflict(lambda: self._publish_once(files, write))

    def _publish_once(self, files: Sequence[StagedFile], write: Write) -> None:
        table = open_table(self._options.path)
        try:
            is_written = table is not None and write.is_in(table)
        except CheckpointOlderThanTable:
            self._remove(file.path for file in files)
            raise
        if is_written:
            logger.info("written before: write=%s", write)
            self._remove(file.path for file in files)
        elif files or self._options.overwrite:
            self._check_there(files)
            self._commit(table, files, write)

    def _check_there(self, files: Sequence[StagedFile]) -> None:
        """Refuse files that only their executor sees: the table would name what nobody can read."""
        for each in files:
            path = self._options.root / each.path
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                size = -1
            if size != each.size:
                found = "the driver does not find it" if size < 0 else f"the driver finds {size}"
                raise TablePathNotShared(
                    f"an executor wrote {path} with {each.size} bytes, {found}: the driver and all "
                    f"executors must share {self._options.path}. Nothing was committed"
                )

    def _write_of(self, staged: Sequence[Staged], batch: int | None) -> Write:
        options = self._options
        if batch is None or not staged:
            return PlainWrite(options.once_as)
        offsets = offsets_hash(options.checkpoint, batch)
        return QueryBatch(
            staged[0].query, batch, options.may_follow_others, offsets, replaces=options.overwrite
        )

    def _commit(self, table: Any, files: Sequence[StagedFile], write: Write) -> None:
        from deltalake.transaction import AddAction, create_table_with_add_actions

        options = self._options
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        adds = [
            AddAction(each.path, each.size, dict(each.values), now_ms, True, each.stats)
            for each in files
        ]
        properties = write.commit_properties(table)
        schema, by = delta_schema(options.schema), list(options.partition_by)
        if table is None:
            create_table_with_add_actions(
                options.path, schema, adds, "error", by, commit_properties=properties
            )
        else:
            mode = "overwrite" if options.overwrite else "append"
            table.create_write_transaction(adds, mode, schema, by, commit_properties=properties)

    def _withdraw(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks left, finished or not, unless the table has it after all."""
        writers = {self._writer} | {each.writer for each in messages if isinstance(each, Staged)}
        table = open_table(self._options.path)
        known = set() if table is None else {Path(each).name for each in table.file_uris()}
        for staged in [each for name in writers for each in staged_by(self._options.root, name)]:
            done = (
                None
                if table is None or not staged.query
                else table.transaction_version(staged.query)
            )
            if staged.path.name in known or (done is not None and done >= staged.batch):
                continue
            staged.path.unlink(missing_ok=True)

    def _remove(self, paths: Iterator[str]) -> None:
        for path in paths:
            (self._options.root / path).unlink(missing_ok=True)


class BatchTableWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("headrace").save(path)`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._publish(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._withdraw(messages)


class StreamTableWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace").start(path)`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._withdraw(messages)


def _attempt(writer: str) -> Attempt:
    context = TaskContext.get()
    if context is None:
        return Attempt("", 0, 0, 0, writer)
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId") or "0"
    # Not attemptNumber, which begins anew when a stage does, while an old task may still write.
    return Attempt(query, int(batch), context.partitionId(), context.taskAttemptId(), writer)


def _with_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The day of `timestamp`, in UTC whatever the session's time zone."""
    days = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.date32())
    return batch.append_column(pa.field("date", pa.date32()), days)
