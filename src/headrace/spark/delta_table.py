"""What every writer of Delta tables shares: opening, fitting, and who wrote which batch.

A table remembers the last batch of every query in the same commit as the batch's rows, and that
queries have written it at all, so that a query without a past can tell that the table has one.
Spark repeats the last batch at most: a checkpoint that comes to any other batch of the past, or to
the last one with other offsets, is an old copy, and rows would be lost if they were taken for
written.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig
from headrace.spark.options import refuse_unknown

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
# Several queries that merge into one table meet now and then; each waits for nobody.
_ATTEMPTS: Final = 5
_QUERY_KEY: Final = "headrace.query"
_BATCH_KEY: Final = "headrace.batch"
_RANGE_KEY: Final = "headrace.range"
_ONCE_KEY: Final = "headrace.once"
_RECENT_COMMITS: Final = 50
_COLOURS: Final = re.compile(r"\x1b\[\d*m")
_TRACE: Final = re.compile(r"\s*0: ")
# Kept by a table for ever, unlike the history that its log tells.
_QUERIES_MARK: Final = "headrace.queries"
# A write that shall happen once has a name of its own, and this one version.
_ONCE_VERSION: Final = 0


class WrittenByOtherQuery(HeadraceError):
    """A query without a past meets a table that has one: its checkpoint may have been lost."""

    code = ErrorCode.INVALID_REQUEST


class RowsOfOthers(WrittenByOtherQuery):
    """A query that replaces a table's rows meets rows that no query has written."""


class TableUnreadable(HeadraceError):
    """What lies at a table's path is no directory, or its log is damaged."""

    code = ErrorCode.INVALID_REQUEST


class CheckpointOlderThanTable(HeadraceError):
    """A query comes to a batch that the table has with other rows: its checkpoint is a copy."""

    code = ErrorCode.INVALID_REQUEST


def local_path(path: str) -> str:
    """An absolute path without its scheme; anything else is refused."""
    rest = path.removeprefix("file://") if path.startswith("file://") else path
    if "://" in rest or not rest.startswith("/"):
        raise InvalidConfig(
            f"path={path!r} must be an absolute path that driver and executors share"
        )
    return rest.rstrip("/")


def table_settings(
    options: Mapping[str, str], known: Iterable[str], *, other_side: Iterable[str] = ()
) -> dict[str, str]:
    """The options by their names in lower case; any that a table does not know is refused."""
    kafka = [name for name in options if name.lower().startswith("kafka.")]
    if kafka:
        raise InvalidConfig(f"option {kafka[0]!r} has no meaning for a table: leave it out")
    refuse_unknown(options, known, other_side=other_side)
    given = {name.lower(): str(value) for name, value in options.items()}
    if "onceas" in given and not given["onceas"].strip():
        raise InvalidConfig("onceAs is empty: give the write a name")
    return given


def names(text: str) -> tuple[str, ...]:
    """Column names from an option that lists them with commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def may_append_to_others(options: Mapping[str, str]) -> bool:
    """The option `otherQueries`, by its name in lower case."""
    follow = options.get("otherqueries", "refuse")
    if follow not in ("refuse", "append"):
        raise InvalidConfig(f"otherQueries={follow!r} is not refuse or append")
    return follow == "append"


def open_table(path: str) -> Any:
    """The table at a path, or None where there is none yet."""
    deltalake = _deltalake()
    try:
        return deltalake.DeltaTable(path) if deltalake.DeltaTable.is_deltatable(path) else None
    except (OSError, deltalake.exceptions.DeltaError) as error:
        # In one line: its own has a cause in each, with colours, and may end by a trace.
        lines = takewhile(lambda line: not _TRACE.match(line), str(error).splitlines())
        said = " ".join(_COLOURS.sub("", " ".join(lines)).replace("↳", ":").split())
        raise TableUnreadable(f"the table {path} cannot be read: {said}") from error


def dataset(path: str) -> Any:
    """The rows of a table as a dataset of Arrow.

    By Arrow's own file system. Without it deltalake has Arrow call back into Python for every
    read, and lets go of its files on threads of Arrow's: where the interpreter ends meanwhile, such
    a thread finds no interpreter and takes the process down, "terminate called without an active
    exception" and exit code 134, after all has been read and printed.
    """
    files = SubTreeFileSystem(path, LocalFileSystem())
    return open_table(path).to_pyarrow_dataset(filesystem=files)


def require_plain(table: Any, path: str) -> None:
    """Deleted rows and renamed columns are kept beside the files, where nobody here would look."""
    if table.protocol().min_reader_version > 1:
        raise InvalidConfig(
            f"the table {path} uses features of Delta that its plain files do not show "
            f"(reader version {table.protocol().min_reader_version})"
        )


def create_table(path: str, schema: pa.Schema, partition_by: tuple[str, ...]) -> Any:
    """An empty table."""
    Path(path).mkdir(parents=True, exist_ok=True)
    return _deltalake().DeltaTable.create(
        path, delta_schema(schema), "error", list(partition_by) or None
    )


def retry_on_conflict(attempt: Callable[[], _Result]) -> _Result:
    """Do what looks at a table and commits to it, again if somebody else's commit came between."""
    from deltalake.exceptions import CommitFailedError

    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except CommitFailedError as error:
            logger.info("somebody else has committed, trying again: error=%s", error)
    return attempt()


def delta_schema(schema: pa.Schema) -> Any:
    """The columns as the table's log writes them."""
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
            "tables need the package deltalake: pip install 'headrace[delta]'"
        ) from error
    return deltalake


def check_partitions(schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
    """Refuse partition columns that are not there, or of which no directory could be named."""
    for name in partition_by:
        if name not in schema.names:
            raise InvalidConfig(f"partitionBy: {name!r} is not one of {', '.join(schema.names)}")
        kind = schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
            raise InvalidConfig(
                f"partitionBy: {name!r} is {kind}; allowed are string, int and date"
            )
    if len(partition_by) == len(schema.names):
        raise InvalidConfig("partitionBy names every column: nothing is left for the files")


def check_fits(
    path: str, schema: pa.Schema, partition_by: tuple[str, ...], *, overwrite: bool
) -> None:
    """Refuse rows that an existing table has no place for, before anything is written."""
    given = {each.name: _kind(each) for each in delta_schema(schema).fields}
    table = open_table(path)
    if table is None:
        return
    there = {each.name: _kind(each) for each in table.schema().fields}
    for name in {} if overwrite else {**there, **given}:
        if there.get(name) != given.get(name):
            raise InvalidConfig(
                f"column {name!r} is {given.get(name, 'missing')} here and "
                f"{there.get(name, 'missing')} in the table {path}"
            )
    by = tuple(table.metadata().partition_columns)
    if by != partition_by:
        raise InvalidConfig(
            f"the table {path} is partitioned by {','.join(by) or 'nothing'}: "
            "set partitionBy to the same"
        )


def _kind(field: Any) -> str:
    return str(field.type.to_json()).strip('"')


# -- who wrote what

_OLDER: Final = (
    "it is older than the table, a copy from before, and rows would be lost if they were taken for "
    "written. Bring back the newest checkpoint, or start a query with an empty one where the table "
    "ends, with otherQueries=append"
)


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """A batch of a streaming query, which a table takes once.

    `offsets` stands for how far it reads (see `offsets_hash`), empty where nobody can tell;
    `replaces` that it takes all rows out that are there.
    """

    query: str
    batch: int
    follows_others: bool = False
    offsets: str = ""
    replaces: bool = False

    def is_in(self, table: Any) -> bool:
        """Whether the table has it; refuses strangers, and checkpoints older than the table."""
        done = table.transaction_version(self.query)
        if done is None:
            if not self.follows_others:
                _refuse_other_queries(table, self.query)
                if self.replaces:
                    _refuse_to_replace(table)
            return False
        if done > self.batch:
            raise CheckpointOlderThanTable(
                f"the table has batch {done} of query {self.query}, whose checkpoint comes to "
                f"batch {self.batch} now: {_OLDER}"
            )
        if done == self.batch and not self._is_same(table):
            raise CheckpointOlderThanTable(
                f"the table has batch {done} of query {self.query} with other offsets than its "
                f"checkpoint: {_OLDER}"
            )
        return bool(done == self.batch)

    def _is_same(self, table: Any) -> bool:
        """Whether the batch that the table has reads as far as this one, as far as one can tell."""
        mine = {_QUERY_KEY: self.query, _BATCH_KEY: str(self.batch)}
        for each in table.history() if self.offsets else ():
            if mine.items() <= each.items():
                return bool(each.get(_RANGE_KEY, self.offsets) == self.offsets)
        return True

    def commit_properties(self, table: Any) -> Any:
        """What goes into the commit of its rows; `table` is None where there is none yet."""
        from deltalake.transaction import CommitProperties, Transaction

        told = {_QUERY_KEY: self.query, _BATCH_KEY: str(self.batch), _RANGE_KEY: self.offsets}
        marks = [Transaction(self.query, self.batch)]
        if table is None or table.transaction_version(_QUERIES_MARK) is None:
            marks.append(Transaction(_QUERIES_MARK, 0))
        return CommitProperties(
            custom_metadata={key: text for key, text in told.items() if text},
            app_transactions=marks,
        )


@dataclass(frozen=True, slots=True)
class PlainWrite:
    """A write by no query; with a name, a table takes it once."""

    name: str | None = None

    def is_in(self, table: Any) -> bool:
        """Whether the table has a write of this name."""
        return self.name is not None and table.transaction_version(self.name) is not None

    def commit_properties(self, table: Any) -> Any:  # noqa: ARG002, as for a query's batch
        """What goes into the commit of its rows."""
        from deltalake.transaction import CommitProperties, Transaction

        if self.name is None:
            return CommitProperties()
        return CommitProperties(
            custom_metadata={_ONCE_KEY: self.name},
            app_transactions=[Transaction(self.name, _ONCE_VERSION)],
        )


Write = QueryBatch | PlainWrite


def once_names(table: Any) -> list[str]:
    """Names of the writes that were to happen once, as far back as the table's log goes."""
    return [each[_ONCE_KEY] for each in table.history() if _ONCE_KEY in each]


def offsets_hash(checkpoint: str | None, batch: int) -> str:
    """What stands for the end of a batch: a hash of the offsets that a checkpoint has for it.

    Empty if the checkpoint is not known, or not on this machine's disks.
    """
    if not checkpoint:
        return ""
    path = Path(checkpoint.removeprefix("file://").removeprefix("file:")) / "offsets" / str(batch)
    try:
        # A version, then the batch's settings with the time of planning, then a line per source.
        ends = path.read_text(encoding="utf-8").splitlines()[2:]
    except (OSError, UnicodeDecodeError):
        return ""
    return hashlib.sha256("\n".join(ends).encode()).hexdigest()[:16] if ends else ""


def _refuse_to_replace(table: Any) -> None:
    if table.transaction_version(_QUERIES_MARK) is None and table.file_uris():
        raise RowsOfOthers(
            "the table has rows that no query has written, and mode complete would replace all of "
            "them: choose another path, or set otherQueries=append if they may go"
        )


def _refuse_other_queries(table: Any, query: str) -> None:
    if table.transaction_version(_QUERIES_MARK) is None:
        return
    others = {each.get(_QUERY_KEY) for each in table.history(_RECENT_COMMITS)} - {None, query}
    wrote = f"query {sorted(others)[0]}" if others else "another query"
    raise WrittenByOtherQuery(
        # All of it in the message: Spark shows that alone.
        f"the table was written by {wrote}, and this is query {query}, which has no batch in it. "
        "If the checkpoint was lost, rows would be written twice: bring it back as it was last (an "
        "older copy will not do), or start where the table ends with otherQueries=append; that is "
        "also for several queries that shall write to one table"
    )
