"""Spark's own Kafka connector, unchanged, against Headrace; and our format beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.client import Client
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.groups import required
from tests.support.spark_readers import numbered, send
from tests.support.tools import spark_connector_jars

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def connector(spark: SparkSession) -> str:
    """The connector's format name; its jars join the session that is running."""
    for jar in required(spark_connector_jars):
        spark.sql(f"ADD JAR '{jar}'")
    return "kafka"


@pytest.fixture
def filled(client: Client, make_topic: TopicMaker) -> str:
    """A topic with keys, headers, nulls and every codec."""
    topic = make_topic(partitions=2)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        values: list[bytes | None] = [*numbered(40, number * 40), None]
        send(client, topic, values, partition=number % 2, codec=codec, key=b"key")
        send(client, topic, [b"with headers"], partition=0, headers=[("a", b"1"), ("b", None)])
    return topic


def read(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format(name).options(**options).load()


def comparable(frame: DataFrame) -> list[Any]:
    """Rows in the order of their places, whatever order they came in."""
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=_place)


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"includeHeaders": "true"},
        {
            "startingOffsets": '{"TOPIC":{"0":7,"1":-2}}',
            "endingOffsets": '{"TOPIC":{"0":50,"1":-1}}',
        },
        {"startingTimestamp": "1700000000020", "startingOffsetsByTimestampStrategy": "latest"},
        {"minPartitions": "5"},
    ],
    ids=["plain", "headers", "offsets", "times", "split"],
)
def test_both_sources_read_the_same_rows(
    spark: SparkSession, connector: str, filled: str, to: Options, more: dict[str, str]
) -> None:
    given = {name: value.replace("TOPIC", filled) for name, value in more.items()}
    options = to(subscribe=filled) | given
    theirs, ours = read(spark, connector, options), read(spark, "headrace", options)
    assert [field.simpleString() for field in ours.schema] == [
        field.simpleString() for field in theirs.schema
    ]
    expected = comparable(theirs)
    assert len(expected) > 100
    assert _without_empty_headers(comparable(ours)) == _without_empty_headers(expected)


def _without_empty_headers(rows: list[Any]) -> list[Any]:
    # The connector has NULL where there are none, we an empty list: see the guide.
    return [{**row, "headers": row.get("headers") or None} for row in rows]


def _run(frame: DataFrame, name: str, options: dict[str, str], checkpoint: str) -> None:
    query = (
        frame.writeStream.format(name)
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()


@pytest.fixture
def memory(spark: SparkSession) -> Iterator[str]:
    yield "connector_rows"
    spark.catalog.dropTempView("connector_rows")


def test_the_connector_streams_from_headrace(
    spark: SparkSession, connector: str, filled: str, to: Options, checkpoint: str, memory: str
) -> None:
    options = to(subscribe=filled, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    rows = spark.readStream.format(connector).options(**options).load()
    _run(rows, "memory", {"queryName": memory}, checkpoint)
    found: list[Row] = spark.table(memory).collect()
    ours = comparable(read(spark, "headrace", to(subscribe=filled)))
    assert sorted((row.asDict() for row in found), key=_place) == ours


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
def test_both_sinks_write_the_same_records(
    spark: SparkSession,
    connector: str,
    filled: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    streaming: bool,
) -> None:
    """Same keys in the same partitions: murmur2 is the same on both sides."""
    source = to(subscribe=filled, includeHeaders="true") | (
        {"startingOffsets": "earliest"} if streaming else {}
    )
    written: dict[str, list[Any]] = {}
    for name in (connector, "headrace"):
        target = make_topic(partitions=3)
        if streaming:
            rows = spark.readStream.format("headrace").options(**source).load()
            kept = rows.where("key IS NOT NULL").select("key", "value", "headers")
            _run(kept, name, to(topic=target), f"{checkpoint}-{name}")
        else:
            rows = read(spark, "headrace", source)
            kept = rows.where("key IS NOT NULL").select("key", "value", "headers")
            kept.write.format(name).options(**to(topic=target)).mode("append").save()
        found = comparable(read(spark, "headrace", to(subscribe=target, includeHeaders="true")))
        written[name] = sorted(
            (row["partition"], row["key"], row["value"] or b"", str(row["headers"]))
            for row in found
        )
    assert len(written["headrace"]) == 205
    assert written["headrace"] == written[connector]


def test_what_our_sink_wrote_the_connector_reads(
    spark: SparkSession, connector: str, topic: str, to: Options
) -> None:
    rows = spark.range(1000).selectExpr(
        "CAST(id AS STRING) AS key",
        "concat('value ', id) AS value",
        "array(named_struct('key', 'id', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = to(topic=topic, kafka__compression__type=codec, kafka__batch__size=4000)
        rows.write.format("headrace").options(**options).mode("append").save()
    found = read(spark, connector, to(subscribe=topic, includeHeaders="true")).selectExpr(
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS value",
        "CAST(headers[0].value AS STRING) AS id",
    )
    assert found.count() == 5000
    assert found.where("value <> concat('value ', key) OR id <> key").count() == 0
    assert found.select("key").distinct().count() == 1000
