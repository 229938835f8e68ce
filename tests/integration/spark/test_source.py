"""`format("headrace")` in a real session: what only the JVM can show."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.client import Client, TopicPartition
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.spark_readers import TIME_MS, numbered, send

JSON = {"valueFormat": "json", "valueSchema": "user string, item int"}
PATIENCE_SECONDS = 120


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("headrace").options(**options).load()


def load_stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("headrace").options(**options).load()


def offsets_of(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def finished(writer: DataStreamWriter) -> StreamingQuery:
    """Run what is there now to its end."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_SECONDS)
    return query


@pytest.fixture
def table(spark: SparkSession) -> Iterator[Callable[[str], DataFrame]]:
    """Reads what a query has written to the memory table of a name, which is dropped at the end."""
    names: list[str] = []

    def read(name: str) -> DataFrame:
        names.append(name)
        return spark.table(name)

    yield read
    for name in names:
        spark.catalog.dropTempView(name)


def test_the_columns_are_those_of_the_kafka_connector(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    with client.producer() as producer:
        producer.send(topic, b"one", key=b"k", timestamp_ms=TIME_MS)
        producer.send(topic, None, headers=[("h", b"1")], timestamp_ms=TIME_MS + 1)
    frame = load(spark, to(subscribe=topic, includeHeaders="true"))
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    shown = frame.select(
        f.col("key").cast("string"),
        f.col("value").cast("string"),
        "topic",
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("ms"),
        "timestampType",
        f.size("headers").alias("headers"),
    )
    first, second = (tuple(row) for row in shown.orderBy("offset").collect())
    assert first == ("k", "one", topic, 0, 0, TIME_MS, 0, 0)
    assert second == (None, None, topic, 0, 1, TIME_MS + 1, 0, 1)


def test_many_rows_of_many_partitions_come_once_each(
    spark: SparkSession, client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=8)
    for partition in range(8):
        send(client, topic, [b"x" * 50] * 5_000, partition=partition)
    frame = load(spark, to(subscribe=topic))
    assert frame.rdd.getNumPartitions() == 2, "few rows, few tasks"
    found = frame.groupBy("partition").agg(
        f.count("*").alias("rows"), f.countDistinct("offset").alias("offsets")
    )
    assert [(row.rows, row.offsets) for row in found.collect()] == [(5_000, 5_000)] * 8


def test_a_wrong_option_reaches_the_user_with_what_is_allowed(
    spark: SparkSession, to: Options
) -> None:
    with pytest.raises(PySparkException, match=r"unknown option.*did you mean 'startingOffsets'"):
        load(spark, to(subscribe="t", startingOffset="earliest"))


def test_a_path_is_that_of_a_table_and_goes_with_no_topic(spark: SparkSession, to: Options) -> None:
    with pytest.raises(PySparkException, match="has no meaning for a table: leave it out"):
        spark.read.format("headrace").options(**to(subscribe="t")).load("somewhere")


def test_headers_without_any_header_go_through_python_at_full_speed(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    """Trap: null lists in every row are quadratic on the way from the JVM to Python."""
    send(client, topic, [b"x"] * 40_000)
    frame = load(spark, to(subscribe=topic, includeHeaders="true"))
    assert frame.where("headers is null").count() == 0

    def timed(columns: list[str]) -> float:
        picked = frame.select(*columns)
        started = time.monotonic()
        counted = picked.mapInArrow(lambda batches: batches, picked.schema).count()
        assert counted == 40_000
        return time.monotonic() - started

    timed(["value"])
    without, with_headers = timed(["value"]), timed(["value", "headers"])
    assert with_headers < 5 * without + 2, (with_headers, without)


def test_filters_work_though_nothing_is_pushed_down(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    """Trap: a reader with pushFilters fails where push-down is off, which is the default."""
    send(client, topic, numbered(10))
    assert offsets_of(load(spark, to(subscribe=topic)).where("offset >= 8")) == [8, 9]
    key = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(key, "true")
    try:
        assert offsets_of(load(spark, to(subscribe=topic)).where("offset >= 8")) == [8, 9]
    finally:
        spark.conf.unset(key)


def test_typed_columns_need_no_session_to_be_parsed(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    """Trap: types cannot be parsed where Spark asks a source for its schema."""
    send(client, topic, [b'{"user":"a","item":3}', b"nonsense", b'{"item":4}'])
    frame = load(spark, to(subscribe=topic, **JSON))
    assert frame.schema["value"].dataType.simpleString() == "struct<user:string,item:int>"
    rows = frame.select("value.*", "_error", f.col("_raw").cast("string")).collect()
    assert [(row.user, row.item) for row in rows] == [("a", 3), (None, None), (None, 4)]
    assert rows[1]._error
    assert rows[1]._raw == "nonsense"
    assert frame.where("_error is null").agg(f.sum("value.item")).first()[0] == 7  # type: ignore[index]  # one row


def test_nested_schemas_and_times_are_typed_as_spark_has_them(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    schema = (
        "id bigint not null, at timestamp, day date, price decimal(10,2), tags array<string>, "
        "place struct<lat: double, names: array<struct<n: string>>>, more map<string, int>"
    )
    value = {
        "id": 1,
        "at": "2024-05-06T07:08:09Z",
        "day": "2024-05-06",
        "price": "1.25",
        "tags": ["a", None],
        "place": {"lat": 0.5, "names": [{"n": "x"}]},
        "more": {"k": 1},
    }
    send(client, topic, [json.dumps(value).encode(), b'{"at": "x"}'])
    frame = load(spark, to(subscribe=topic, valueFormat="json", valueSchema=schema))
    good, bad = frame.orderBy("offset").select(f.to_json("value").alias("text"), "_error").collect()
    assert json.loads(good.text) == {
        **value,
        "at": "2024-05-06T07:08:09.000Z",
        "price": 1.25,
    }
    assert bad.text is None
    assert bad._error


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    options = to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    for first, count in ((0, 10), (10, 5)):
        send(client, topic, numbered(count, first))
        writer = load_stream(spark, options).select("offset", "value").writeStream
        writer = writer.option("checkpointLocation", checkpoint).format("noop")
        query = finished(writer)
        sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
        assert sum(sizes) == count
        assert max(sizes) <= 4


def test_progress_shows_where_a_stream_is_and_where_its_topic_ends(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    send(client, topic, numbered(6))
    options = to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    writer = load_stream(spark, options).writeStream.format("noop")
    query = finished(writer.option("checkpointLocation", checkpoint))
    first, second = (p["sources"][0] for p in query.recentProgress if p["numInputRows"])
    assert json.loads(_text(first["endOffset"])) == {topic: {"0": 4}}
    assert json.loads(_text(first["latestOffset"])) == {topic: {"0": 6}}
    assert json.loads(_text(second["startOffset"])) == {topic: {"0": 4}}
    assert json.loads(_text(second["endOffset"])) == {topic: {"0": 6}}


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def test_lag_of_a_stream_is_that_of_its_group_to_the_last_batch(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    """Trap: Spark tells a source of a finished batch one batch late, and never of the last."""
    group = f"spark-{topic}"
    send(client, topic, numbered(9))
    options = to(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, commitGroup=group
    )
    writer = load_stream(spark, options).writeStream.format("noop")
    finished(writer.option("checkpointLocation", checkpoint))
    committed = client.admin.committed_offsets(group)
    assert committed[TopicPartition(topic, 0)].offset == 9
    send(client, topic, numbered(3))
    [lag] = client.admin.group_lag(group)
    assert lag.lag == 3


def test_windows_over_typed_columns_are_counted(
    spark: SparkSession,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    table: Callable[[str], DataFrame],
) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        documents = [json.dumps({"user": "u", "item": n % 3}).encode() for n in range(3_000)]
        send(client, topic, documents, partition=partition)
    frame = load_stream(spark, to(subscribe=topic, startingOffsets="earliest", **JSON))
    counts = (
        frame.where("_error is null")
        .groupBy(f.window("timestamp", "1 second"), "value.item")
        .count()
    )
    name = f"counts_{topic.replace('-', '_')}"
    writer = counts.writeStream.outputMode("complete").format("memory").queryName(name)
    finished(writer.option("checkpointLocation", checkpoint))
    rows = table(name).collect()
    assert sum(row["count"] for row in rows) == 6_000
    assert len(rows) == 9


def test_new_partitions_are_found_while_a_query_runs(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    writer = load_stream(spark, to(subscribe=topic)).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        client.admin.create_partitions({topic: 2})
        send(client, topic, numbered(5), partition=1)
        query.processAllAvailable()
        assert sum(p["numInputRows"] for p in query.recentProgress) == 5
    finally:
        query.stop()


def test_data_loss_stops_a_query_with_the_offsets_that_are_gone(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    send(client, topic, numbered(10))
    client.admin.delete_records({TopicPartition(topic, 0): 4})
    options = to(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    writer = load_stream(spark, options).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=r"offsets 1 to 3 .* are gone"):
        query.awaitTermination(PATIENCE_SECONDS)
    lenient = load_stream(spark, {**options, "failOnDataLoss": "false"}).writeStream.format("noop")
    done = finished(lenient.option("checkpointLocation", checkpoint))
    assert sum(p["numInputRows"] for p in done.recentProgress) == 6


def test_a_task_that_fails_is_read_again_whole(
    spark: SparkSession, client: Client, topic: str, to: Options, tmp_path: Any
) -> None:
    send(client, topic, numbered(100))
    mark = str(tmp_path / "failed-once")

    def fail_once(batches: Any) -> Any:
        import os

        for batch in batches:
            if not os.path.exists(mark):
                open(mark, "w").close()
                raise RuntimeError("the first attempt fails")
            yield batch

    frame = load(spark, to(subscribe=topic)).select("offset")
    assert offsets_of(frame.mapInArrow(fail_once, frame.schema)) == list(range(100))


def test_a_limit_stops_a_read_early(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    send(client, topic, [b"x" * 1000] * 20_000)
    options = {**to(subscribe=topic), "kafka.max.partition.fetch.bytes": "100000"}
    assert len(load(spark, options).limit(5).collect()) == 5
