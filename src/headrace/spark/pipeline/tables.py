"""Delta tables as frames, with no jar: their log says which files count, Spark reads those."""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidConfig
from headrace.spark.delta_table import local_path, open_table


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The table as it is now; what is written to it later is not seen."""
    table = open_table(local_path(path))
    if table is None:
        raise InvalidConfig(f"there is no Delta table at {path}")
    _require_plain(table, path)
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", local_path(path)).parquet(*files)


def _require_plain(table: Any, path: str) -> None:
    """Deleted rows and renamed columns are kept beside the files, where Spark would not look."""
    if table.protocol().min_reader_version > 1:
        raise InvalidConfig(
            f"the table {path} uses features of Delta that its plain files do not show "
            f"(reader version {table.protocol().min_reader_version})"
        )
