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
from headrace.spark.options import SOURCE_NAMES, refuse_unknown
from headrace.spark.sink_options import SPARK_NAMES, TOPIC_SINK_NAMES
from headrace.spark.table_files import Attempt, Stage, StagedFile, staged_by

logger = logging.getLogger(__name__)

TABLE_NAMES: Final = ("path", "partitionBy", "otherQueries")
_QUERY_KEY: Final = "headrace.query"
_BATCH_KEY: Final = "headrace.batch"
_RECENT_COMMITS: Final = 50


class WrittenByOtherQuery(HeadraceError):
    """A query without a past meets a table that has one: its checkpoint may have been lost."""

    code = ErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Everything a writer needs; it pickles, and goes to the executors with the writer."""

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    overwrite: bool
    may_follow_others: bool
    makes_date: bool

    @property
    def root(self) -> Path:
        return Path(self.path)


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What one task wrote, and for whom."""

    query: str
    files: tuple[StagedFile, ...]


def table_options(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TableOptions:
    """The options and the columns, checked; raises InvalidConfig with what to change."""
    others = (*SOURCE_NAMES, *TOPIC_SINK_NAMES)
    kafka = [name for name in options if name.lower().startswith("kafka.")]
    if kafka:
        raise InvalidConfig(f"option {kafka[0]!r} has no meaning for a table: leave it out")
    refuse_unknown(options, (*TABLE_NAMES, *SPARK_NAMES), other_side=others)
    given = {name.lower(): str(value) for name, value in options.items()}
    path = _local(given["path"])
    partition_by = tuple(
        each.strip() for each in given.get("partitionby", "").split(",") if each.strip()
    )
    follow = given.get("otherqueries", "refuse")
    if follow not in ("refuse", "append"):
        raise InvalidConfig(f"otherQueries={follow!r} is not refuse or append")
    makes_date = "date" in partition_by and "date" not in schema.names
    chosen = TableOptions(
        path=path,
        schema=_arrow(schema, makes_date=makes_date),
        partition_by=partition_by,
        overwrite=overwrite,
        may_follow_others=follow == "append",
        makes_date=makes_date,
    )
    _check_columns(chosen)
    _check_table(chosen)
    return chosen


def _local(path: str) -> str:
    rest = path.removeprefix("file://") if path.startswith("file://") else path
    if "://" in rest or not rest.startswith("/"):
        raise InvalidConfig(
            f"path={path!r} must be an absolute path that driver and executors share"
        )
    return rest.rstrip("/")


def _arrow(schema: StructType, *, makes_date: bool) -> pa.Schema:
    if makes_date and (
        "timestamp" not in schema.names or schema["timestamp"].dataType != TimestampType()
    ):
        raise InvalidConfig(
            "partitionBy=date needs a column 'date', or a 'timestamp' to make it of"
        )
    fields = [each.with_nullable(True) for each in to_arrow_schema(schema, timezone="UTC")]
    return pa.schema([*fields, pa.field("date", pa.date32())] if makes_date else fields)


def _check_columns(options: TableOptions) -> None:
    names = options.schema.names
    for name in options.partition_by:
        if name not in names:
            raise InvalidConfig(f"partitionBy: {name!r} is not one of {', '.join(names)}")
        kind = options.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
            raise InvalidConfig(
                f"partitionBy: {name!r} is {kind}; allowed are string, int and date"
            )
    if len(options.partition_by) == len(names):
        raise InvalidConfig("partitionBy names every column: nothing is left for the files")


def _check_table(options: TableOptions) -> None:
    """Refuse rows that an existing table has no place for, before anything is written."""
    given = {each.name: _kind(each) for each in _delta_schema(options.schema).fields}
    table = open_table(options.path)
    if table is None:
        return
    there = {each.name: _kind(each) for each in table.schema().fields}
    for name in {} if options.overwrite else {**there, **given}:
        if there.get(name) != given.get(name):
            raise InvalidConfig(
                f"column {name!r} is {given.get(name, 'missing')} here and "
                f"{there.get(name, 'missing')} in the table {options.path}"
            )
    by = tuple(table.metadata().partition_columns)
    if by != options.partition_by:
        raise InvalidConfig(
            f"the table {options.path} is partitioned by {','.join(by) or 'nothing'}: "
            "set partitionBy to the same"
        )


def _kind(field: Any) -> str:
    return str(field.type.to_json()).strip('"')


def _delta_schema(schema: pa.Schema) -> Any:
    deltalake = _deltalake()
    try:
        return deltalake.Schema.from_arrow(schema)
    except Exception as error:
        raise InvalidConfig(f"a Delta table cannot hold these columns: {error}") from error


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise InvalidConfig(
            "tables need the package deltalake: pip install headrace[delta]"
        ) from error
    return deltalake


def open_table(path: str) -> Any:
    """The table at a path, or None where there is none yet."""
    deltalake = _deltalake()
    return deltalake.DeltaTable(path) if deltalake.DeltaTable.is_deltatable(path) else None


class _Writer:
    """What batch and stream have in common; made on the driver, once for each batch."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options
        self._writer = uuid.uuid4().hex

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        options = self._options
        attempt = _attempt(self._writer)
        with Stage(options.root, options.schema, options.partition_by, attempt) as stage:
            for batch in batches:
                if batch.num_rows:
                    stage.add(_with_date(batch) if options.makes_date else batch)
        return Staged(attempt.query, tuple(stage.finished))

    def _publish(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        staged = [each for each in messages if isinstance(each, Staged)]
        files = [file for each in staged for file in each.files]
        query = staged[0].query if staged and batch is not None else None
        table = open_table(self._options.path)
        if table is not None and query is not None and batch is not None:
            done = table.transaction_version(query)
            if done is not None and done >= batch:
                logger.info("written before: query=%s batch=%d", query, batch)
                self._remove(file.path for file in files)
                return
            if done is None and not self._options.may_follow_others:
                _refuse_strangers(table, query)
        if files or self._options.overwrite:
            self._commit(table, files, query, batch)

    def _commit(
        self, table: Any, files: Sequence[StagedFile], query: str | None, batch: int | None
    ) -> None:
        from deltalake.transaction import (
            AddAction,
            CommitProperties,
            Transaction,
            create_table_with_add_actions,
        )

        options = self._options
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        adds = [
            AddAction(each.path, each.size, dict(each.values), now_ms, True, each.stats)
            for each in files
        ]
        properties = CommitProperties()
        if query is not None and batch is not None:
            properties = CommitProperties(
                custom_metadata={_QUERY_KEY: query, _BATCH_KEY: str(batch)},
                app_transactions=[Transaction(query, batch)],
            )
        schema, by = _delta_schema(options.schema), list(options.partition_by)
        if table is None:
            create_table_with_add_actions(
                options.path, schema, adds, "error", by, commit_properties=properties
            )
        else:
            mode = "overwrite" if options.overwrite else "append"
            table.create_write_transaction(adds, mode, schema, by, commit_properties=properties)

    def _withdraw(self) -> None:
        """Remove what this writer's tasks left, unless the table has it after all."""
        table = open_table(self._options.path)
        known = set() if table is None else {Path(each).name for each in table.file_uris()}
        for staged in staged_by(self._options.root, self._writer):
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

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._withdraw()


class StreamTableWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace").start(path)`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._withdraw()


def _attempt(writer: str) -> Attempt:
    context = TaskContext.get()
    if context is None:
        return Attempt("", 0, 0, 0, writer)
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId") or "0"
    return Attempt(query, int(batch), context.partitionId(), context.attemptNumber(), writer)


def _with_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The day of `timestamp`, in UTC whatever the session's time zone."""
    days = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.date32())
    return batch.append_column(pa.field("date", pa.date32()), days)


def _refuse_strangers(table: Any, query: str) -> None:
    others = {each.get(_QUERY_KEY) for each in table.history(_RECENT_COMMITS)} - {None, query}
    if others:
        raise WrittenByOtherQuery(
            f"the table was written by query {sorted(others)[0]}, and this is query {query}, which "
            "has no batch in it",
            hint="if the checkpoint was lost, rows would be written twice: bring it back, or start "
            "where the table ends; if both queries shall write, set otherQueries=append",
        )
