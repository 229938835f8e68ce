"""Backfills: a range of the past through the steps, once where the sink can tell."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client, TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.pipeline import PipelineInvalid
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import records
from tests.support.pipelines import Written, clicks
from tests.support.spark_readers import send

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.fixture
def written(tmp_path: Path, broker: Broker, topic: str) -> Written:
    return Written(tmp_path, broker.bootstrap_servers, topic)


def test_a_range_of_times_fills_a_table_once(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(10)), start_ms=START_MS)
    pipeline = written.step(filter="id <> 4").table().load()
    since, until = "2026-01-01T00:00:00.003Z", datetime(2026, 1, 1, 0, 0, 0, 7_000)
    done = pipeline.backfill(spark, since, until)
    place = TopicPartition(topic, 0)
    assert (done.start, done.end, done.records) == ({place: 3}, {place: 7}, 4)
    [sink] = done.sinks
    assert (sink.rows, sink.repeatable) == (3, True)
    [sink] = pipeline.backfill(spark, since, until).sinks
    assert sink.rows is None, "the table has this range"
    assert sorted(row["id"] for row in written.rows()) == [3, 5, 6]
    assert not (written.directory / "checkpoint").exists()
    [sink] = pipeline.backfill(spark, since, until, again=True).sinks
    assert sink.rows == 3
    assert len(written.rows()) == 6


def test_times_that_mean_more_offsets_than_before_are_refused(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    """The same command, after one more record of its time: what is there must not come twice."""
    send(client, topic, clicks(range(4)), start_ms=START_MS)
    pipeline = written.table().load()
    since, until = START_MS, START_MS + 3_600_000
    pipeline.backfill(spark, since, until)
    send(client, topic, clicks([4]), start_ms=START_MS + 5)
    with pytest.raises(PipelineInvalid, match=f"has written offsets 0 to 3 of {topic}-0, and this"):
        pipeline.backfill(spark, since, until)
    assert len(written.rows()) == 4
    pipeline.backfill(spark, {topic: {"0": 4}}, until)
    assert sorted(row["id"] for row in written.rows()) == [0, 1, 2, 3, 4]


def test_a_table_that_a_stream_fills_takes_a_backfill_and_the_stream_goes_on(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks(range(4)))
    written.source["from"] = {"offsets": {topic: {0: 2}}}
    pipeline = written.table().load()
    written.run(spark)
    pipeline.backfill(spark, "earliest", {topic: {"0": 2}})
    send(client, topic, clicks([4]))
    written.run(spark)
    assert sorted(row["id"] for row in written.rows()) == [0, 1, 2, 3, 4]


def test_what_the_pipeline_itself_has_written_is_refused_before_anything_is_written(
    spark: SparkSession,
    client: Client,
    make_topic: TopicMaker,
    broker: Broker,
    tmp_path: Path,
) -> None:
    topic, dead, target = make_topic(partitions=3), make_topic("dead"), make_topic("target")
    for partition in range(3):
        send(client, topic, clicks([partition]), partition=partition)
    send(client, topic, [b"not json"], partition=2)
    written = Written(tmp_path, broker.bootstrap_servers, topic)
    written.document["on_bad_record"] = {"dead_letter": dead}
    written.table().sink(topic={"name": target, "key": "item"})
    pipeline = written.load()
    written.run(spark)
    with pytest.raises(PipelineInvalid) as raised:
        pipeline.backfill(spark, "earliest")
    ranges = f"({topic}-0: 0 to 0, {topic}-1: 0 to 0, {topic}-2: 0 to 1)"
    said = [each.message for each in raised.value.problems]
    assert len(said) == 3
    assert said[0].startswith(f"the pipeline itself has written offsets of this range {ranges}")
    assert said[1].endswith("or write them twice with `--again`")
    assert said[2].startswith("the pipeline itself has sent the bad records of this range")
    counts = len(written.rows()), len(records(client, target)), len(records(client, dead))
    assert counts == (3, 3, 1)
    # What came since is no matter of the checkpoint's.
    send(client, topic, clicks([9]), partition=1)
    done = pipeline.backfill(spark, {topic: {"0": 1, "1": 1, "2": 2}}, sinks=["table"])
    assert [each.rows for each in done.sinks] == [1]
    done = pipeline.backfill(spark, "earliest", sinks=["table"], again=True)
    assert done.sinks[0].note == (
        f"the pipeline itself has written {topic}-0 below offset 1, {topic}-1 below offset 1, "
        f"{topic}-2 below offset 2: those rows are there twice now"
    )


def test_bad_records_of_a_range_are_letters_whichever_sinks_are_chosen(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, written: Written
) -> None:
    dead = make_topic("dead")
    send(client, topic, [*clicks([1]), b"not json"])
    written.document["on_bad_record"] = {"dead_letter": dead}
    pipeline = written.table().table("second").load()
    pipeline.backfill(spark, "earliest", sinks=["second"])
    assert [each.value for each in records(client, dead)] == [b"not json"]
    assert len(written.rows("second")) == 1


def test_windows_and_dedup_run_as_a_batch_into_a_topic(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, written: Written
) -> None:
    target = make_topic()
    send(client, topic, clicks([1, 1, 2, 3, 3]))
    written.step(dedup={"by": ["id"], "time": "at", "watermark": "1 minute"})
    window = {"time": "at", "size": "1 minute", "watermark": "1 minute", "agg": {"n": "count(*)"}}
    written.step(window=window).sink(topic={"name": target, "key": ["window"], "mode": "update"})
    [sink] = written.load().backfill(spark).sinks
    assert (sink.rows, sink.repeatable) == (1, False)
    assert "windows that reach over an end of the range" in sink.note
    [record] = records(client, target)
    assert json.loads(record.value or b"")["n"] == 3


def test_an_upsert_is_backfilled(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1, 2, 1]))
    written.table(upsert={"on": ["id"]})
    [sink] = written.load().backfill(spark, "earliest").sinks
    assert sink.rows == 3
    assert sorted((row["id"], row["offset"]) for row in written.rows()) == [(1, 2), (2, 1)]
    [sink] = written.load().backfill(spark, "earliest").sinks
    assert sink.rows is None


def test_an_empty_range_is_told_and_writes_nothing(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1]), start_ms=START_MS)
    done = written.table().load().backfill(spark, "2027-01-01T00:00:00Z")
    assert (done.records, done.sinks) == (0, ())
    assert not (written.directory / "table").exists()


def test_what_a_batch_cannot_do_is_refused_before_anything_is_written(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1]))
    written.table().table("replaced", mode="complete").sink(parquet={"path": "files"})
    (written.directory / "steps.py").touch()
    step = {"function": "steps.py:Total", "by": ["item"], "schema": "a int"}
    written.document["sinks"][1]["steps"] = [{"stateful": step}]
    with pytest.raises(PipelineInvalid) as raised:
        written.load().backfill(spark)
    said = [each.message.partition(":")[0] for each in raised.value.problems]
    assert said == [
        "mode complete",
        "a batch has no state from before its range, so it cannot do this",
        "a batch cannot add to the files of a stream",
    ]
    assert not (written.directory / "table").exists()
    assert len(written.load().backfill(spark, sinks=["table"]).sinks) == 1
    with pytest.raises(InvalidConfig, match="there is no sink 'tables': there are table, replaced"):
        written.load().backfill(spark, sinks=["tables"])


def test_rows_that_cannot_be_written_are_told_at_the_sink(
    spark: SparkSession, client: Client, topic: str, written: Written
) -> None:
    send(client, topic, clicks([1]))
    written.step(select=["raise_error(item) AS x"]).table()
    with pytest.raises(PipelineInvalid, match=r"yaml:\d+:3: .*item-1"):
        written.load().backfill(spark)


def test_a_place_that_is_no_time_is_refused(spark: SparkSession, written: Written) -> None:
    with pytest.raises(InvalidConfig, match="'soon' is not earliest, latest or a time such as"):
        written.table().load().backfill(spark, "soon")
