"""Delta tables read as frames: partition values are those of the table's log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.spark.pipeline.tables import read_table
from tests.support.spark_tables import StreamOfBatches, rows

CITIES = ["New York", "01", "a/b", "é%20", "x=y"]


def test_partition_values_of_a_table_of_our_own_are_read_as_they_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "our table"
    stream = StreamOfBatches(path, partitionBy="topic")
    stream.run(0, [rows([n], topic=name) for n, name in enumerate([*CITIES, ""])])
    found = {each.offset: each.topic for each in read_table(spark, str(path)).collect()}
    assert found == dict(enumerate([*CITIES, None]))


def test_spark_reads_a_table_without_a_jar(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "our table"
    stream = StreamOfBatches(path, partitionBy="topic,date")
    stream.run(0, [rows([n], topic=name) for n, name in enumerate([*CITIES, ""])])
    frame = spark.read.format("headrace").option("path", str(path)).load()
    found = {each.offset: each.topic for each in frame.where("offset >= 0").collect()}
    assert found == dict(enumerate([*CITIES, None]))
    assert frame.schema == read_table(spark, str(path)).schema
    assert sorted(frame.collect()) == sorted(read_table(spark, str(path)).collect())
    assert spark.read.format("headrace").load(str(path)).count() == 6
    nowhere = spark.read.format("headrace").option("path", "/no/such/table")
    with pytest.raises(PySparkException, match="there is no Delta table at /no/such/table"):
        nowhere.load()


def test_files_whose_directories_tell_nothing_get_the_values_of_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("city", pa.string()), ("n", pa.int64()), ("many", pa.int64())])
    there = pa.table({"city": ["", "Zürich"], "n": [7, 8], "many": [1, 2]}, schema)
    write_deltalake(tmp_path / "table", there, partition_by=["city", "n"])
    frame = read_table(spark, str(tmp_path / "table"))
    assert frame.columns == ["city", "n", "many"]
    assert {tuple(each) for each in frame.collect()} == {(None, 7, 1), ("Zürich", 8, 2)}
