"""Every sink of a pipeline: what it holds, and what it refuses when a checkpoint is gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline import PipelineInvalid
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import records
from tests.support.pipelines import Written, clicks
from tests.support.spark_readers import send


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    return Written(tmp_path, broker.bootstrap_servers, topic)


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_topic_gets_keys_values_and_headers_by_expression(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    written: Written,
    mode: str,
) -> None:
    target = make_topic()
    send(client, topic, clicks([7]))
    headers = "array(struct('from' AS key, CAST(topic AS BINARY) AS value))"
    written.sink(
        topic={
            "name": target,
            "key": "CAST(id AS STRING)",
            "value": "concat(item, '!')",
            "headers": headers,
            "mode": mode,
            "options": {"kafka.compression.type": "zstd"},
        }
    ).run(spark)
    [record] = records(client, target)
    assert (record.key, record.value) == (b"7", b"item-1!")
    assert list(record.headers) == [("from", topic.encode())]


def test_a_topic_gets_whole_rows_as_json_and_all_of_them_in_complete_mode(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, written: Written
) -> None:
    target = make_topic()
    written.step(sql="SELECT item, count(*) AS n FROM input GROUP BY item")
    written.sink(topic={"name": target, "key": ["item"], "mode": "complete"})
    send(client, topic, clicks([0, 1]))
    written.run(spark)
    send(client, topic, clicks([0]))
    written.run(spark)
    found = [json.loads(each.value or b"") for each in records(client, target)]
    newest = {each["item"]: each["n"] for each in found}
    assert (newest, len(found)) == ({"item-0": 2, "item-1": 1}, 4)
    assert {each.key for each in records(client, target)} == {
        b'{"item":"item-0"}',
        b'{"item":"item-1"}',
    }


def test_a_table_is_partitioned_by_the_day_of_the_record(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1]), start_ms=1_767_225_600_000)
    written.table(partition_by=["date"]).run(spark)
    assert [str(row["date"]) for row in written.rows()] == ["2026-01-01"]
    assert (written.directory / "table" / "date=2026-01-01").is_dir()


def test_an_upsert_keeps_the_newest_row_and_deletes(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, broker: Broker
) -> None:
    written = Written(tmp_path, broker.bootstrap_servers, topic, "op string, id int, name string")
    upsert = {"on": ["id"], "delete_when": "op = 'd'", "columns": ["id", "name", "offset"]}
    written.table(upsert=upsert)

    def change(op: str, number: int, name: str) -> bytes:
        return json.dumps({"op": op, "id": number, "name": name}).encode()

    send(client, topic, [change("c", 1, "ann"), change("c", 2, "bob"), change("u", 1, "anne")])
    written.run(spark)
    send(client, topic, [change("d", 2, ""), change("c", 3, "cy")])
    written.run(spark)
    found = {row["id"]: row["name"] for row in written.rows()}
    assert found == {1: "anne", 3: "cy"}


def test_parquet_files_are_partitioned(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1, 2]))
    written.sink(parquet={"path": "files", "partition_by": ["item"]}).run(spark)
    found = spark.read.parquet(str(written.directory / "files"))
    assert sorted((row.id, row.item) for row in found.collect()) == [(1, "item-1"), (2, "item-2")]
    assert (written.directory / "files" / "item=item-1").is_dir()


def test_the_console_is_a_sink(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1, 2]))
    written.sink(console=None).run(spark)


def lose_the_checkpoint(written: Written) -> None:
    shutil.rmtree(written.directory / "checkpoint")


def refusal(written: Written, spark: SparkSession) -> str:
    with pytest.raises(PipelineInvalid) as raised:
        written.load().start(spark, once=True)
    [problem] = raised.value.problems
    assert problem == written.load().check(spark)[0]
    return problem.message


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"delta": {"path": "table"}}, "has rows of an earlier query: if the checkpoint was lost"),
        ({"parquet": {"path": "files"}}, "_spark_metadata has batches of an earlier query"),
    ],
    ids=["delta", "parquet"],
)
def test_a_lost_checkpoint_is_told_by_the_sink(
    spark: SparkSession,
    client: Client,
    topic: str,
    written: Written,
    sink: dict[str, Any],
    said: str,
) -> None:
    send(client, topic, clicks([1, 2]))
    written.sink(**sink).run(spark)
    lose_the_checkpoint(written)
    assert said in refusal(written, spark)


def test_a_lost_checkpoint_is_told_by_the_group(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, written: Written
) -> None:
    written.source["commit_group"] = f"{topic}-group"
    target = make_topic()
    send(client, topic, clicks([1, 2]))
    written.sink(topic={"name": target}).run(spark)
    lose_the_checkpoint(written)
    assert f"with `from: {{offsets: {{{topic}: {{0: 2}}}}}}`" in refusal(written, spark)
    assert len(records(client, target)) == 2
    # The way on that the message names: from where the group stands.
    written.source["from"] = {"offsets": {topic: {0: 2}}}
    send(client, topic, clicks([3]))
    written.run(spark)
    assert len(records(client, target)) == 3
