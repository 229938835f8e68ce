"""Parquet files of a table, written by tasks and not yet part of it.

A file's name says which query, batch, task and attempt wrote it, and which writer of the driver
had asked: files of a failed batch are found by their names, since nobody hands their list over.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
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
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
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
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
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
        if kind is None:
            self.finish()
            return
        for each in self._open.values():
            each.discard()
        for done in self.finished:
            (self._root / done.path).unlink(missing_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows, each to the file of its partition values."""
        for values, rows in self._split(batch):
            found = self._open.get(values)
            if found is None:
                if len(self._open) >= _OPEN_FILES_MAX:
                    self.finish()
                found = self._open[values] = self._begin(values)
            found.write(rows.select(self._data_names))

    def finish(self) -> None:
        """Close all files and make sure that they are on disk."""
        self.finished += [each.close(self._root) for each in self._open.values()]
        self._open.clear()

    def _split(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
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

    def _begin(self, values: tuple[str | None, ...]) -> "_OpenFile":
        named = tuple(zip(self._partition_by, values, strict=True))
        directory = self._root.joinpath(*(_directory(name, value) for name, value in named))
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self._attempt.file_name(self._number)
        self._number += 1
        schema = pa.schema([self._schema.field(name) for name in self._data_names])
        return _OpenFile(path, schema, named)


class _OpenFile:
    """One file while it grows."""

    def __init__(
        self, path: Path, schema: pa.Schema, values: tuple[tuple[str, str | None], ...]
    ) -> None:
        self._path, self._values = path, values
        self._writer = pq.ParquetWriter(path, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows.cast(self._writer.schema))
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def close(self, root: Path) -> StagedFile:
        self._flush()
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
        self._writer.close()
        self._path.unlink(missing_ok=True)


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
    # For people and simple readers: the table itself takes values from its log, not from names.
    return f"{name}={_NULL_DIRECTORY if value is None else _UNSAFE.sub('_', value)}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
