"""Changes of a topic merged into a table by a real query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Client
from headrace.core.errors import InvalidConfig
from headrace.spark import upsert
from tests.integration.spark.conftest import Options
from tests.support.spark_readers import send

PATIENCE_SECONDS = 120


def changes(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    typed = {"valueFormat": "json", "valueSchema": "id int, name string, op string"}
    reader = spark.readStream.format("headrace").options(**options, **typed)
    return reader.load().select("value.*", "offset")


def run(rows: DataFrame, options: dict[str, str], checkpoint: str, killed_in: int = -1) -> None:
    merge = upsert.each_batch(options)

    def each(frame: DataFrame, batch: int) -> None:
        merge(frame, batch)
        if batch == killed_in:
            raise OSError("killed behind the merge")

    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_SECONDS)


def test_changes_of_a_topic_make_a_table_and_a_crash_after_the_merge_changes_nothing(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    path = tmp_path / "customers"
    options = {"path": str(path), "on": "id", "newestBy": "offset", "deleteWhen": "op = 'd'"}
    options["columns"] = "id,name,offset"
    first = [b'{"id":1,"name":"ada"}', b'{"id":2,"name":"bob"}', b'{"id":1,"name":"Ada"}']
    second = [b'{"id":2,"op":"d"}', b'{"id":3,"name":"cy"}', b'{"id":3,"name":"Cy"}']
    send(client, topic, [*first, *second])
    begin = json.dumps({topic: {"0": 0}})  # as offsets: the first batch then has rows
    rows = changes(spark, to(subscribe=topic, startingOffsets=begin, maxOffsetsPerTrigger=3))
    with pytest.raises(StreamingQueryException, match="killed behind the merge"):
        run(rows, options, checkpoint, killed_in=1)
    version = DeltaTable(path).version()
    run(rows, options, checkpoint)
    found = DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(each["id"], each["name"], each["offset"]) for each in found] == [
        (1, "Ada", 2),
        (3, "Cy", 5),
    ]
    assert DeltaTable(path).version() == version == 2


def test_a_batch_is_merged_once_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "customers"
    options = {"path": str(path), "on": "id", "newestBy": "at", "onceAs": "first"}
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'new', 2), (1, 'old', 1), (1, 'none', null) t(id, name, at)"
    )
    assert upsert.write(rows, options)
    assert not upsert.write(rows.selectExpr("id", "'again' AS name", "9 AS at"), options)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"id": 1, "name": "new", "at": 2}]


@pytest.mark.parametrize(
    ("condition", "said"), [("colour = 'd'", "cannot be used"), ("id + 1", "is int, not true or")]
)
def test_a_condition_that_cannot_be_is_told_before_anything_is_read(
    spark: SparkSession, condition: str, said: str
) -> None:
    rows = spark.sql("SELECT 1 AS id, 2 AS at")
    options = {"path": "/data/t", "on": "id", "newestBy": "at", "deleteWhen": condition}
    with pytest.raises(InvalidConfig, match=said):
        upsert.check(rows, options)
    upsert.check(rows, {**options, "deleteWhen": "at > 5"})
