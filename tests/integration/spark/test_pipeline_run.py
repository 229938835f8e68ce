"""Pipelines in the session that the tests share: what arrives in their sinks, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.spark.pipeline import PipelineInvalid
from headrace.spark.pipeline.run import QueryFailed
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import records
from tests.support.pipelines import Written, clicks
from tests.support.spark_readers import send

WINDOW = {"time": "at", "size": "1 minute", "watermark": "1 minute", "by": ["item"]}


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    return Written(tmp_path, broker.bootstrap_servers, topic)


def test_clicks_are_filtered_into_a_table_and_counted_into_a_topic(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, written: Written
) -> None:
    counts, dead = make_topic("counts"), make_topic("dead")
    send(client, topic, [*clicks(range(30)), b"not json", *clicks(range(30), minute=1)])
    written.source["commit_group"] = f"{topic}-group"
    written.document["on_bad_record"] = {"dead_letter": dead}
    written.step(filter="price > 0").table()
    target = {"name": counts, "key": ["window", "item"], "mode": "update"}
    written.sink(topic=target, steps=[{"window": {**WINDOW, "agg": {"n": "count(*)"}}}])
    written.run(spark)
    assert len(written.rows()) == 48
    found = {each.key: json.loads(each.value or b"") for each in records(client, counts)}
    assert sum(each["n"] for each in found.values()) == 48
    assert len(found) == 6
    start = "2026-01-01T00:01:00.000Z"
    assert {each["item"] for each in found.values() if each["window"]["start"] == start} == {
        "item-0",
        "item-1",
        "item-2",
    }
    # Each sink reads for itself, and still a bad record is one letter.
    assert [each.value for each in records(client, dead)] == [b"not json"]
    for sink in ("table", "topic"):
        lag = client.admin.group_lag(f"{topic}-group-{sink}")
        assert [each.lag for each in lag] == [0]


def test_a_pipeline_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    written.source["commit_group"] = f"{topic}-group"
    written.table()
    send(client, topic, clicks(range(10)))
    written.run(spark)
    send(client, topic, clicks(range(10, 15)))
    written.run(spark)
    assert sorted(row["id"] for row in written.rows()) == list(range(15))
    # With one sink the group has the name that was given.
    assert [each.lag for each in client.admin.group_lag(f"{topic}-group")] == [0]


def test_a_checkpoint_of_another_pipeline_is_refused_and_stays_as_it_was(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    broker: Broker,
    written: Written,
) -> None:
    """A file that was copied, and its checkpoint forgotten: by its name, or by its topics."""
    send(client, topic, clicks(range(4)))
    written.table().run(spark)
    copy = Written(written.directory, broker.bootstrap_servers, make_topic()).table("other")
    copy.document["sinks"][0]["name"] = "table"
    mark = written.directory / "checkpoint" / "table" / "headrace.json"
    for said in ("is that of the query clicks-table, and this is", "is of a query that reads"):
        copy.document["name"] = "copied"
        with pytest.raises(PipelineInvalid, match=said):
            copy.load().start(spark, once=True)
        mark.unlink(missing_ok=True)  # as a checkpoint of before has none
    send(client, topic, clicks([4]))
    written.run(spark)
    assert mark.exists()
    assert sorted(row["id"] for row in written.rows()) == [0, 1, 2, 3, 4]


def test_bad_records_are_rows_with_a_reason_unless_a_topic_is_named(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, [*clicks([1]), b"not json"])
    written.table().run(spark)
    good, bad = sorted(written.rows(), key=lambda row: row["offset"])
    assert (good["id"], good["_error"]) == (1, None)
    assert (bad["id"], bad["_raw"]) == (None, b"not json")
    assert bad["_error"]


def test_fields_may_stay_in_one_column_beside_those_of_the_record(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, broker: Broker
) -> None:
    send(client, topic, [b'{"timestamp": "yesterday"}'], start_ms=1_767_225_600_000)
    written = Written(tmp_path, broker.bootstrap_servers, topic, "timestamp string")
    written.source["value"]["as"] = "payload"
    written.source["columns"] = ["timestamp"]
    written.step(select=["payload.timestamp AS said", "timestamp"]).table().run(spark)
    [row] = written.rows()
    assert (row["said"], row["timestamp"].isoformat()) == ("yesterday", "2026-01-01T00:00:00+00:00")


def test_a_query_that_fails_ends_the_pipeline_and_says_why(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(3)))
    written.table("fine")
    written.table("broken")
    written.document["sinks"][1]["steps"] = [{"select": ["raise_error(item) AS x"]}]
    run = written.load().start(spark)
    with pytest.raises(QueryFailed, match=r"clicks-broken: .*item-0"):
        run.wait(60)
    assert list(run.failed) == ["clicks-broken"]
    assert not run.is_active


def test_a_function_that_fails_is_told_by_what_it_raised(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(3)))
    (written.directory / "steps.py").write_text(
        "def step(batches):\n    raise ValueError('mine')\n"
    )
    written.step(python={"function": "steps.py:step", "schema": "a int"}).table()
    run = written.load().start(spark, once=True)
    with pytest.raises(QueryFailed, match=r"^clicks-table: ValueError: mine$"):
        run.wait(60)


def test_a_pipeline_that_is_stopped_between_batches_has_done_whole_ones(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(20)))
    written.source["max_rows_per_batch"] = 5
    written.document["trigger"] = {"every": "1 second"}
    run = written.table().load().start(spark)
    assert not run.wait(timeout=0)
    while not (written.directory / "table" / "_delta_log").exists():
        assert not run.wait(timeout=0.1)
    run.stop(patience=60)
    assert not run.is_active
    assert not run.failed
    assert len(written.rows()) % 5 == 0


def test_settings_hold_for_the_pipeline_alone(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(3)))
    before = spark.conf.get("spark.sql.shuffle.partitions")
    written.document["settings"] = {"spark.sql.shuffle.partitions": 3}
    written.step(sql="SELECT item, count(*) AS n FROM input GROUP BY item")
    written.table(mode="complete").run(spark)
    assert spark.conf.get("spark.sql.shuffle.partitions") == before != "3"
    states = list((written.directory / "checkpoint" / "table" / "state" / "0").iterdir())
    assert {each.name for each in states if each.name.isdigit()} == {"0", "1", "2"}


def test_a_setting_that_a_session_cannot_change_is_refused(
    spark: SparkSession, written: Written
) -> None:
    written.document["settings"] = {"spark.executor.memory": "3g"}
    pipeline = written.table().load()
    said = r"yaml:\d+:3: settings: spark.executor.memory is not set in this session"
    with pytest.raises(PipelineInvalid, match=said):
        pipeline.start(spark)
    [problem] = pipeline.check(spark)
    assert "spark.executor.memory is not set in this session" in problem.message


def test_a_query_that_spark_does_not_start_is_told_at_its_sink(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1]))
    written.table().sink(console={"mode": "complete"})
    with pytest.raises(PipelineInvalid, match=r"yaml:\d+:3: .*Invalid streaming output mode"):
        written.load().start(spark)
    assert not [query for query in spark.streams.active if query.name == "clicks-table"]


def test_a_stream_has_no_end(spark: SparkSession, written: Written) -> None:
    written.source["to"] = "latest"
    with pytest.raises(PipelineInvalid, match="`to` is for `headrace pipeline backfill`"):
        written.table().load().start(spark)
