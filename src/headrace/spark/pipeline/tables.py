"""Delta tables as frames, with no jar: their log says which files count, Spark reads those.

Spark takes the values of partition columns from the names of directories. Where those do not say
what the log says, of which the log is right, the files are read by themselves and get its values.
"""

import json
from collections import defaultdict
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as all the world calls it
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark.delta_table import local_path, open_table, require_plain
from headrace.spark.table_files import NULL_DIRECTORY

Values = tuple[tuple[str, Any], ...]


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The files that the table has now, read when they are needed; later ones are not seen."""
    table = open_table(local_path(path))
    if table is None:
        raise InvalidConfig(f"there is no Delta table at {path}")
    require_plain(table, path)
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    root = local_path(path)
    named, others = files_by_names(table, root)
    if named:
        frame = spark.read.schema(schema).option("basePath", root).parquet(*named)
        frame = frame.select(*schema.names)
    else:
        frame = spark.createDataFrame([], schema)
    for values, files in others.items():
        told = dict(values)
        stored = StructType([each for each in schema if each.name not in told])
        rows = spark.read.schema(stored).parquet(*files)
        for name, value in values:
            rows = rows.withColumn(name, F.lit(value).cast(schema[name].dataType))
        frame = frame.unionByName(rows)
    return frame


def files_by_names(table: Any, root: str) -> tuple[list[str], dict[Values, list[str]]]:
    """Files whose directories tell their values, and the others by the values of the log."""
    by = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    named: list[str] = []
    others: dict[Values, list[str]] = defaultdict(list)
    for each in actions:
        path = unquote(each["path"])
        values = tuple((name, each[f"partition.{name}"]) for name in by)
        if _named(path) == {name: _text(value) for name, value in values}:
            named.append(f"{root}/{path}")
        else:
            others[values].append(f"{root}/{path}")
    return named, others


def _named(path: str) -> dict[str, str | None]:
    """Partition values as Spark takes them from directories."""
    found = [each.partition("=") for each in path.split("/")[:-1]]
    return {
        _unescaped(name): None if text == NULL_DIRECTORY else _unescaped(text)
        for name, _, text in found
    }


def _unescaped(text: str) -> str:
    return unquote(text, encoding="latin-1")  # for Spark each escape is one character


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
