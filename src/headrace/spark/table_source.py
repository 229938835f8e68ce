"""Delta tables behind `spark.read`: their log says which files count, tasks read those by Arrow.

Spark asks for the columns first, and for the files when a query is planned: what the table got in
between is read too, fitted to the columns that were promised.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark.delta_table import local_path, open_table, require_plain, table_settings
from headrace.spark.options import SOURCE_NAMES
from headrace.spark.sink_options import TOPIC_SINK_NAMES
from headrace.spark.workers import freeze_imports

READ_NAMES: Final = ("path",)
# As large as one task should read at a time, and not so small that starting it takes longer.
_TASK_BYTES: Final = 128 * 1024 * 1024
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    values: tuple[tuple[str, Any], ...]


class Files(InputPartition):
    """What one task reads."""

    def __init__(self, files: Sequence[_File]) -> None:
        super().__init__(None)
        self.files = tuple(files)


def table_schema_json(options: Mapping[str, str]) -> str:
    """The columns of the table at `path`, as the JSON of a StructType."""
    return str(_table(options).schema().to_json())


def refuse_stream() -> None:
    """A table is read as it is now."""
    raise InvalidConfig(
        "path: a Delta table is read as a batch, by spark.read; a stream reads topics (subscribe)"
    )


class TableReader(DataSourceReader):
    """All rows of the table, as it is when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        table = _table(self._options)
        root, by = local_path(_path(self._options)), table.metadata().partition_columns
        files = [
            _File(
                f"{root}/{unquote(each['path'])}",
                each["size_bytes"],
                tuple((name, each[f"partition.{name}"]) for name in by),
            )
            for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        ]
        tasks: list[list[_File]] = []
        filled = _TASK_BYTES
        for file in sorted(files, key=lambda each: each.path):
            if filled + file.size > _TASK_BYTES:
                tasks.append([])
                filled = 0
            tasks[-1].append(file)
            filled += file.size
        return [Files(task) for task in tasks] or [Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, Files)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        freeze_imports()
        for file in partition.files:
            yield from _rows(file, schema)


def _rows(file: _File, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A file's rows: partition columns by the log, columns that came later as nulls."""
    values = dict(file.values)
    try:
        parquet = pq.ParquetFile(file.path)
    except FileNotFoundError as error:
        raise InvalidConfig(
            f"the table's file {file.path} is not there: is the path one that driver and executors "
            "share, or was the table vacuumed meanwhile?"
        ) from error
    with parquet:
        stored = [name for name in schema.names if name in parquet.schema_arrow.names]
        if not stored:
            yield _fitted(pa.record_batch([], []), schema, values, parquet.metadata.num_rows)
            return
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=stored):
            yield _fitted(batch, schema, values, batch.num_rows)


def _fitted(
    batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, Any], rows: int
) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name in values:
            found = pa.repeat(pa.scalar(values[field.name]), rows)
        elif field.name in batch.schema.names:
            found = batch.column(field.name)
        else:
            found = pa.nulls(rows)
        arrays.append(found if found.type == field.type else found.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _table(options: Mapping[str, str]) -> Any:
    path = _path(options)
    table = open_table(local_path(path))
    if table is None:
        raise InvalidConfig(f"there is no Delta table at {path}")
    require_plain(table, path)
    return table


def _path(options: Mapping[str, str]) -> str:
    others = (*SOURCE_NAMES, *TOPIC_SINK_NAMES)
    return table_settings(options, READ_NAMES, other_side=others)["path"]
