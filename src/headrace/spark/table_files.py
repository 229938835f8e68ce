"""Parquet files of a table, written by tasks and not yet part of it.

A file's name says which query, batch, task and attempt wrote it, and which writer of the driver
had asked: files of a failed batch are found by their names, since nobody hands their list over.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_OPEN_FILES_MAX = 64
# Rows are written in groups of about this size: Spark's pieces alone would cost thrice as much.
_GROUP_BYTES = 8 * 1024 * 1024
# Rows of all files that may wait; a table of many partitions shares this.
_WAITING_BYTES_MAX = 64 * 1024 * 1024
# What a column costs beside its values, which counts where pieces are of a row or two.
_COLUMN_BYTES = 256
_Values = tuple[str | None, ...]
_UNSAFE = re.compile(r"[^A-Za-z0-9._\-\u0080-\U0010ffff]")
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_NAME = re.compile(
    r"part-(?P<query>[0-9a-f-]{36}|batch)-(?P<batch>\d+)-\d+-\d+-(?P<writer>[0-9a-f]{32})-\d+"
    r"\.parquet"
)


class Attempt(NamedTuple):
    """Who writes: a query's batch (query is empty for a plain batch write), task and attempt."""

    query: str
    batch: int
    task: int
    attempt: int
    writer: str

    def file_name(self, number: int) -> str:
        query, batch, task, attempt, writer = self
        return f"part-{query or 'batch'}-{batch}-{task}-{attempt}-{writer}-{number}.parquet"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete file below the table's directory that no version of the table knows yet."""

    path: str
    size: int
    values: tuple[tuple[str, str | None], ...]
    stats: str


class Stage:
    """The files of one task; leaving it by an exception removes them."""

    def __init__(
        self, root: Path, schema: pa.Schema, partition_by: Sequence[str], attempt: Attempt
    ) -> None:
        self._root, self._schema, self._attempt = root, schema, attempt
        self._partition_by = partition_by
        self._data_names = [name for name in schema.names if name not in partition_by]
        self._growing: dict[_Values, _GrowingFile] = {}
        self._open: dict[_Values, None] = {}
        self._waiting_bytes = 0
        self._number = 0
        self.finished: list[StagedFile] = []

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self.finish()
        except BaseException:
            self._discard()
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, each for the file of its partition values."""
        for values, rows in self._split(batch):
            found = self._growing.get(values)
            if found is None:
                found = self._growing[values] = self._begin(values)
            before = found.waiting_bytes
            found.add(rows.select(self._data_names))
            self._waiting_bytes += found.waiting_bytes - before
            if found.waiting_bytes >= _GROUP_BYTES:
                self._write(values)
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            self._write_most()

    def finish(self) -> None:
        """Close all files and make sure that they are on disk."""
        for values in list(self._growing):
            self._close(values)

    def _write_most(self) -> None:
        """Make room, by the files that give most of it."""
        sizes = {values: each.waiting_bytes for values, each in self._growing.items()}
        for values in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self._waiting_bytes <= _WAITING_BYTES_MAX // 2:
                break
            self._write(values)

    def _write(self, values: _Values) -> None:
        if values not in self._open and len(self._open) >= _OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        # At the end of those that are open: the one that waits longest is closed first.
        self._open.pop(values, None)
        self._open[values] = None
        found = self._growing[values]
        self._waiting_bytes -= found.waiting_bytes
        found.write()

    def _close(self, values: _Values) -> None:
        found = self._growing[values]
        self._waiting_bytes -= found.waiting_bytes
        self.finished.append(found.close(self._root))
        del self._growing[values]
        self._open.pop(values, None)

    def _discard(self) -> None:
        for each in self._growing.values():
            each.discard()
        for done in self.finished:
            _remove(self._root / done.path)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[_Values, pa.RecordBatch]]:
        if not self._partition_by:
            yield (), batch
            return
        coded = [
            pc.dictionary_encode(batch.column(name), null_encoding="encode")
            for name in self._partition_by
        ]
        combined = np.zeros(batch.num_rows, np.int64)
        for each in coded:
            combined = combined * (len(each.dictionary) + 1) + each.indices.to_numpy()
        _, first, which = np.unique(combined, return_index=True, return_inverse=True)
        for number, row in enumerate(first.tolist()):
            values = tuple(_text(batch.column(name)[row].as_py()) for name in self._partition_by)
            whole = len(first) == 1
            yield values, batch if whole else batch.filter(pa.array(which == number))

    def _begin(self, values: _Values) -> "_GrowingFile":
        named = tuple(zip(self._partition_by, values, strict=True))
        directory = self._root.joinpath(*(_directory(name, value) for name, value in named))
        path = directory / self._attempt.file_name(self._number)
        self._number += 1
        schema = pa.schema([self._schema.field(name) for name in self._data_names])
        return _GrowingFile(path, schema, named)


class _GrowingFile:
    """One file while it grows; it is there once the first rows are written."""

    def __init__(
        self, path: Path, schema: pa.Schema, values: tuple[tuple[str, str | None], ...]
    ) -> None:
        self._path, self._schema, self._values = path, schema, values
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self.waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows.cast(self._schema))
        self.waiting_bytes += rows.nbytes + _COLUMN_BYTES * rows.num_columns
        self._rows += rows.num_rows

    def write(self) -> None:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, self._schema)
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self.waiting_bytes = [], 0

    def close(self, root: Path) -> StagedFile:
        self.write()
        assert self._writer is not None, "made by write"
        self._writer.close()
        _sync(self._path)
        _sync(self._path.parent)
        # Ends of some columns but not of all make readers of delta-rs drop rows that match.
        stats = {"numRecords": self._rows}
        return StagedFile(
            path=self._path.relative_to(root).as_posix(),
            size=self._path.stat().st_size,
            values=self._values,
            stats=json.dumps(stats),
        )

    def discard(self) -> None:
        """Never raises: it is called for an error, which must not be hidden by a second one."""
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        _remove(self._path)


class StagedName(NamedTuple):
    """What the name of a staged file tells."""

    path: Path
    query: str
    batch: int


def staged_by(root: Path, writer: str) -> list[StagedName]:
    """Every file that tasks of this writer left behind, whatever their attempt."""
    found = []
    for path in root.rglob(f"part-*-{writer}-*.parquet"):
        match = _NAME.fullmatch(path.name)
        if match is not None:
            query = "" if match["query"] == "batch" else match["query"]
            found.append(StagedName(path, query, int(match["batch"])))
    return found


def _directory(name: str, value: str | None) -> str:
    # As Spark names them, since it takes values from names and not from the log: each escape is
    # one character for it, so those beyond ASCII have none.
    return f"{_escaped(name)}={NULL_DIRECTORY if value is None else _escaped(value)}"


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _text(value: Any) -> str | None:
    # A table's log has no empty text among partition values: readers take it for null.
    return None if value is None or value == "" else str(value)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
