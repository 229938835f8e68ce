"""Changes merged into a Delta table: the newest row of every key, each micro-batch exactly once.

    changes.writeStream.foreachBatch(upsert.each_batch(options)).start()
    upsert.write(changes, options)

Spark keeps the newest row of each key of a batch; the driver merges those into the table with one
commit, which also names (query, batch): a batch that is run again after a crash is seen to be
there. Where the table has the columns that say what is newer, an older row never replaces a newer
one. A key that was deleted leaves no trace, so an older row of it that comes later is inserted.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructType

from headrace.core.errors import InvalidConfig, InvalidRecord
from headrace.spark.delta_table import (
    PlainWrite,
    QueryBatch,
    Write,
    check_fits,
    check_partitions,
    create_table,
    local_path,
    may_append_to_others,
    names,
    offsets_hash,
    open_table,
    retry_on_conflict,
    table_settings,
)

logger = logging.getLogger(__name__)

UPSERT_NAMES: Final = (
    "path",
    "on",
    "newestBy",
    "deleteWhen",
    "columns",
    "partitionBy",
    "otherQueries",
    "onceAs",
    "checkpointLocation",
)
DELETED: Final = "_headrace_deleted"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class UpsertOptions:
    """What was asked for. `columns` are those of the table; empty: all that the rows have."""

    path: str
    on: tuple[str, ...]
    newest_by: tuple[str, ...]
    delete_when: str | None = None
    columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    may_follow_others: bool = False
    once_as: str | None = None
    checkpoint: str | None = None


def each_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`, in append or update mode; wrong options raise here."""
    chosen = upsert_options(options, streaming=True)

    def merge_batch(rows: DataFrame, batch: int) -> None:
        offsets = offsets_hash(chosen.checkpoint, batch)
        _merge(rows, chosen, QueryBatch(_query_of(rows), batch, chosen.may_follow_others, offsets))

    return merge_batch


def write(rows: DataFrame, options: Mapping[str, str]) -> bool:
    """Merge a batch, a backfill for instance; with `onceAs` only if no write had that name yet.

    False where one had, and nothing was done.
    """
    chosen = upsert_options(options, streaming=False)
    return _merge(rows, chosen, PlainWrite(chosen.once_as))


def _merge(rows: DataFrame, options: UpsertOptions, write: Write) -> bool:
    merge = Merge(options, rows.schema, write)
    if not merge.is_done():
        return merge.run(newest(rows, options, merge.columns).toArrow())
    logger.info("written before: write=%s", write)
    return False


def check(rows: DataFrame, options: Mapping[str, str], *, streaming: bool = True) -> None:
    """Whether these rows can be merged, with nothing read; raises InvalidConfig if not."""
    chosen = upsert_options(options, streaming=streaming)
    merge = Merge(chosen, rows.schema, PlainWrite())
    _ = newest(rows, chosen, merge.columns).schema


def upsert_options(options: Mapping[str, str], *, streaming: bool) -> UpsertOptions:
    """The options, checked as far as they can be without rows."""
    given = table_settings(options, UPSERT_NAMES)
    for name, what in (
        ("path", "where the table is"),
        ("on", "the columns of its key"),
        ("newestBy", "the columns that tell which row of a key is the newest, such as offset"),
    ):
        if not given.get(name.lower(), "").strip():
            raise InvalidConfig(f"option {name!r} is missing: {what}")
        if not names(given[name.lower()]):
            raise InvalidConfig(f"{name} names no column")
    if streaming and "onceas" in given:
        raise InvalidConfig("onceAs is for batch writes: each batch of a stream is written once")
    if not streaming and "checkpointlocation" in given:
        raise InvalidConfig("checkpointLocation is for streams: a batch has no checkpoint")
    return UpsertOptions(
        path=local_path(given["path"].strip()),
        on=names(given["on"]),
        newest_by=names(given["newestby"]),
        delete_when=given.get("deletewhen"),
        columns=names(given.get("columns", "")),
        partition_by=names(given.get("partitionby", "")),
        may_follow_others=may_append_to_others(given),
        once_as=given.get("onceas"),
        checkpoint=given.get("checkpointlocation"),
    )


# -- which rows


def newest(rows: DataFrame, options: UpsertOptions, columns: tuple[str, ...]) -> DataFrame:
    """One row for each key, the newest, with a column that says whether it deletes."""
    deleted = _deletes(rows, options.delete_when)
    # A struct, since a row whose order is null must not vanish: it counts as the oldest.
    order = f.struct(*map(_column, options.newest_by))
    row = f.struct(*map(_column, columns), deleted.alias(DELETED))
    grouped = rows.groupBy(*map(_column, options.on))
    return grouped.agg(f.max_by(row, order).alias("row")).select("row.*")


def _deletes(rows: DataFrame, condition: str | None) -> Column:
    if condition is None:
        return f.lit(False)
    try:
        kind = rows.select(f.expr(condition)).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        told = str(error).splitlines()[0]
        raise InvalidConfig(f"deleteWhen={condition!r} cannot be used: {told}") from error
    if kind != BooleanType():
        raise InvalidConfig(f"deleteWhen={condition!r} is {kind.simpleString()}, not true or false")
    return f.coalesce(f.expr(condition), f.lit(False))


def _column(name: str) -> Column:
    return f.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _query_of(rows: DataFrame) -> str:
    """The id that the checkpoint holds: a lost one gives another, which the table can tell."""
    session = rows.sparkSession
    if not isinstance(session, SparkSession):
        raise InvalidConfig(
            "upsert in a stream needs a session of its own: over Spark Connect nobody tells which "
            "query a batch is of"
        )
    query = session.sparkContext.getLocalProperty(_QUERY_PROPERTY)
    if not query:
        raise InvalidConfig("each_batch is for writeStream.foreachBatch; use write for a batch")
    return query


# -- into the table


class Merge:
    """Rows of one schema, to be merged into one table; made on the driver for each batch."""

    def __init__(self, options: UpsertOptions, schema: StructType, write: Write) -> None:
        self._options, self._write = options, write
        self.columns = options.columns or tuple(schema.names)
        self._check_columns(schema.names)
        kinds = to_arrow_schema(StructType([schema[each] for each in self.columns]), timezone="UTC")
        self._schema = pa.schema([each.with_nullable(True) for each in kinds])
        check_partitions(self._schema, options.partition_by)
        check_fits(options.path, self._schema, options.partition_by, overwrite=False)

    def _check_columns(self, there: list[str]) -> None:
        options = self._options
        for option, wanted, known in (
            ("columns", self.columns, there),
            ("on", options.on, self.columns),
            ("newestBy", options.newest_by, there),
        ):
            for name in wanted:
                if name not in known:
                    raise InvalidConfig(f"{option}: {name!r} is not one of {', '.join(known)}")

    def is_done(self) -> bool:
        """Whether the table has this write; refuses a query new to a table that others wrote."""
        table = open_table(self._options.path)
        return table is not None and self._write.is_in(table)

    def run(self, rows: pa.Table) -> bool:
        """Merge rows, one for each key and with `DELETED`, in one commit.

        False where another driver did so since it was asked: what the commit is checked against
        is the version that was looked at, so one that lands later still is a conflict, upon which
        the table is looked at anew.
        """
        if not rows.num_rows:
            return True
        options = self._options
        for name in options.on:
            if rows.column(name).null_count:
                raise InvalidRecord(
                    f"a row has no {name!r}, and the table's rows are told apart by it: leave such "
                    "rows out"
                )
        return retry_on_conflict(lambda: self._run_once(rows))

    def _run_once(self, rows: pa.Table) -> bool:
        options = self._options
        table = open_table(options.path)
        if table is None:
            table = create_table(options.path, self._schema, options.partition_by)
        if self._write.is_in(table):
            return False
        self._into(table, rows)
        return True

    def _into(self, table: Any, rows: pa.Table) -> None:
        options, commit = self._options, self._write.commit_properties(table)
        source = rows.cast(self._schema.append(pa.field(DELETED, pa.bool_())))
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in options.on)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in self.columns}
        newer, deleted = self._is_newer(), f"s.{_quoted(DELETED)}"
        merger = table.merge(source, same, "s", "t", streamed_exec=False, commit_properties=commit)
        merger = merger.when_matched_delete(f"{deleted} AND {newer}")
        merger = merger.when_matched_update(values, f"NOT {deleted} AND {newer}")
        done = merger.when_not_matched_insert(values, f"NOT {deleted}").execute()
        logger.info(
            "merged: path=%s inserted=%d updated=%d deleted=%d",
            options.path,
            done["num_target_rows_inserted"],
            done["num_target_rows_updated"],
            done["num_target_rows_deleted"],
        )
        # Of those that delete nobody knows whether there was nothing, or something newer.
        kept = rows.num_rows - pc.sum(rows.column(DELETED).cast(pa.int64())).as_py()
        older = kept - done["num_target_rows_inserted"] - done["num_target_rows_updated"]
        if older:
            logger.warning(
                "rows that are older than the table's were left out: path=%s rows=%d newest_by=%s",
                options.path,
                older,
                ",".join(options.newest_by),
            )

    def _is_newer(self) -> str:
        """Whether a row is at least as new as the table's, if that keeps what tells."""
        order = self._options.newest_by
        if not set(order) <= set(self.columns):
            return "true"
        said = "true"
        for name in reversed(order):
            ours, theirs = f"s.{_quoted(name)}", f"t.{_quoted(name)}"
            unknown = f"({theirs} IS NULL AND {ours} IS NOT NULL)"
            same = f"({ours} = {theirs} OR ({ours} IS NULL AND {theirs} IS NULL))"
            said = f"(coalesce({ours} > {theirs}, false) OR {unknown} OR ({same} AND {said}))"
        return said
