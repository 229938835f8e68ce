"""Sinks in a real session: rows into topics and tables, and the ways that Spark runs them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.cli.main import main
from headrace.client import EARLIEST, Client, ReceivedRecord, TopicPartition
from headrace.protocol.murmur2 import partition_for_key
from headrace.spark.session import activate
from headrace.spark.sink import each_batch
from headrace.testing import Broker
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support import spark_faults
from tests.support.spark_faults import Compared, compare, fault_options
from tests.support.spark_readers import numbered, send
from tests.support.spark_tables import parquet_files

PATIENCE_SECONDS = 120


def records(client: Client, topic: str) -> list[ReceivedRecord]:
    """Everything in the topic now."""
    partitions = [TopicPartition(topic, n) for n in range(len(client.topic(topic).partitions))]
    ends = client.admin.list_offsets({each: _latest() for each in partitions})
    left = sum(each.offset for each in ends.values())
    found: list[ReceivedRecord] = []
    if not left:
        return found
    with client.reader(dict.fromkeys(partitions, EARLIEST)) as reader:
        for record in reader:
            found.append(record)
            if len(found) == left:
                break
    return found


def _latest() -> Any:
    from headrace.client import LATEST

    return LATEST


def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("headrace").options(**options).load()


def finish(writer: DataStreamWriter) -> None:
    """Run a query over what is there now."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()


def from_start(to: Options, topic: str, **more: object) -> dict[str, str]:
    return to(subscribe=topic, startingOffsets="earliest", **more)


def test_rows_arrive_with_key_value_headers_and_partition(
    spark: SparkSession, client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=4)
    rows = spark.sql(
        "SELECT * FROM VALUES "
        "(CAST('k' AS BINARY), 'one', array(named_struct('key', 'h', 'value', X'01')), 3), "
        "(NULL, 'two', array(), 1), "
        "(CAST('k' AS BINARY), NULL, NULL, NULL) AS rows(key, value, headers, partition)"
    )
    rows.write.format("headrace").options(**to(topic=topic)).mode("append").save()
    found = {(each.key, each.value): each for each in records(client, topic)}
    assert len(found) == 3
    assert found[b"k", b"one"].partition == 3
    assert list(found[b"k", b"one"].headers) == [("h", b"\x01")]
    assert found[None, b"two"].partition == 1
    assert found[b"k", None].partition == partition_for_key(b"k", 4)


def test_trap_1_rows_without_headers_travel_as_such(
    spark: SparkSession, client: Client, topic: str, make_topic: TopicMaker, to: Options
) -> None:
    """Our source never gives a null list, which Spark would take quadratic time to hand over."""
    send(client, topic, numbered(50))
    rows = spark.read.format("headrace").options(**to(subscribe=topic, includeHeaders=True)).load()
    assert rows.where("headers IS NULL").count() == 0
    target = make_topic()
    rows.select("value", "headers").write.format("headrace").options(**to(topic=target)).mode(
        "append"
    ).save()
    assert [list(each.headers) for each in records(client, target)] == [[]] * 50


def test_the_topic_column_routes_rows(
    spark: SparkSession, client: Client, make_topic: TopicMaker, to: Options
) -> None:
    even, odd = make_topic("even", partitions=2), make_topic("odd")
    rows = spark.range(100).selectExpr(
        f"IF(id % 2 = 0, '{even}', '{odd}') AS topic", "CAST(id AS STRING) AS value"
    )
    rows.write.format("headrace").options(**to()).mode("append").save()
    assert {int(each.value or b"") for each in records(client, even)} == set(range(0, 100, 2))
    assert {int(each.value or b"") for each in records(client, odd)} == set(range(1, 100, 2))


def test_a_thread_writes_once_it_has_the_session(
    spark: SparkSession, client: Client, topic: str, to: Options
) -> None:
    rows = spark.range(5).selectExpr("CAST(id AS STRING) AS value")

    def write() -> None:
        activate(spark)
        rows.write.format("headrace").options(**to(topic=topic)).mode("append").save()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()
    assert len(records(client, topic)) == 5


def test_a_row_without_a_topic_fails_the_write(spark: SparkSession, to: Options) -> None:
    rows = spark.sql("SELECT CAST(NULL AS STRING) AS topic, 'x' AS value")
    with pytest.raises(Exception, match="a row has no topic"):
        rows.write.format("headrace").options(**to()).mode("append").save()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_rows_are_compressed_as_asked(
    spark: SparkSession, client: Client, topic: str, to: Options, codec: str
) -> None:
    rows = spark.range(500).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("headrace").options(**to(topic=topic, kafka__compression__type=codec)).mode(
        "append"
    ).save()
    assert {int(each.value or b"") for each in records(client, topic)} == set(range(500))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "t", "delivery": "exactly-once"}, "needs transactions, which are not supported"),
        ({"topik": "t"}, "did you mean 'topic'"),
    ],
)
def test_options_are_refused_where_the_job_can_see_it(
    spark: SparkSession, to: Options, given: dict[str, str], said: str
) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(AnalysisException, match=said):
        rows.write.format("headrace").options(**to(**given)).mode("append").save()


def test_a_row_too_large_for_its_topic_fails_with_what_to_do(
    spark: SparkSession, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(max_message_bytes="1000")
    rows = spark.sql("SELECT repeat('x', 5000) AS value")
    with pytest.raises(Exception, match=r"no row may be larger than the topic's max\.message"):
        rows.write.format("headrace").options(**to(topic=topic)).mode("append").save()


def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
) -> None:
    target = make_topic(partitions=2)
    for begin in (0, 500):
        send(client, topic, numbered(500, begin))
        rows = stream(spark, from_start(to, topic, maxOffsetsPerTrigger=300)).select("value")
        writer = rows.writeStream.format("headrace").options(**to(topic=target))
        finish(writer.option("checkpointLocation", checkpoint))
    assert sorted(each.value or b"" for each in records(client, target)) == sorted(numbered(1000))


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_counts_go_to_a_topic_as_they_change(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    mode: str,
) -> None:
    """Spark has no update mode for Python sinks; `each_batch` is the way for it."""
    target = make_topic()
    for _ in range(2):
        send(client, topic, [b"a", b"b", b"a"])
        counts = (
            stream(spark, from_start(to, topic))
            .groupBy("value")
            .count()
            .selectExpr("value AS key", "CAST(count AS STRING) AS value")
        )
        writer = counts.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
        if mode == "update":
            finish(writer.foreachBatch(each_batch(to(topic=target))))
        else:
            finish(writer.format("headrace").options(**to(topic=target)))
    newest = {each.key: each.value for each in records(client, target)}
    assert newest == {b"a": b"4", b"b": b"2"}


def places(client: Client, topic: str) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in records(client, topic)]


def archived(path: Path) -> list[tuple[int, int]]:
    table = DeltaTable(path).to_pyarrow_table()
    return list(
        zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    )


def test_a_stream_is_archived_by_topic_and_day_checked_and_replayed(
    spark: SparkSession,
    broker: Broker,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, again = make_topic(partitions=2), make_topic(partitions=2)
    path = tmp_path / "archive"
    for round_number in range(2):
        for partition in (0, 1):
            values = numbered(100, 100 * round_number)
            send(client, source, values, partition=partition, key=b"k", headers=[("h", b"1")])
        rows = stream(spark, from_start(to, source, includeHeaders=True))
        writer = rows.writeStream.format("headrace").option("partitionBy", "topic,date")
        finish(writer.option("checkpointLocation", checkpoint).option("path", str(path)))
    assert compare(places(client, source), archived(path)) == Compared(0, 0, 0)
    assert {each.parent.parent.name for each in path.rglob("part-*")} == {f"topic={source}"}

    _command("archive", "verify", str(path), "-o", "json")
    told = json.loads(capsys.readouterr().out)
    assert [(each["rows"], each["gaps"], each["duplicates"]) for each in told] == [(200, [], 0)] * 2
    servers = broker.bootstrap_servers
    _command("archive", "replay", str(path), "--to", again, "-b", servers)
    assert f"replayed 400 records into {again}" in capsys.readouterr().out
    assert [each[1:] for each in sorted(records(client, again))] == [
        each[1:] for each in sorted(records(client, source))
    ]


def _command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


def test_an_archive_with_a_hole_fails_the_check(
    spark: SparkSession,
    client: Client,
    topic: str,
    to: Options,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send(client, topic, numbered(100))
    rows = spark.read.format("headrace").options(**to(subscribe=topic)).load()
    rows.where("offset NOT BETWEEN 40 AND 49").write.format("headrace").mode("append").save(
        str(tmp_path / "table")
    )
    with pytest.raises(SystemExit) as ended:
        main(["archive", "verify", str(tmp_path / "table")])
    assert ended.value.code == 1
    assert "40-49" in capsys.readouterr().out


def test_parquet_is_written_by_sparks_own_sink(
    spark: SparkSession,
    client: Client,
    topic: str,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(tmp_path / "parquet")
    for begin in (0, 100):
        send(client, topic, numbered(100, begin))
        rows = stream(spark, from_start(to, topic)).selectExpr("*", "to_date(timestamp) AS date")
        writer = rows.writeStream.format("parquet").partitionBy("topic", "date")
        finish(writer.option("checkpointLocation", checkpoint).option("path", path))
    assert sorted(row.offset for row in spark.read.parquet(path).collect()) == list(range(200))
    _command("archive", "verify", path)
    assert "200" in capsys.readouterr().out


def test_a_table_is_replaced_by_a_batch_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for mode, count in (("append", 10), ("append", 20), ("overwrite", 10)):
        rows = spark.range(10).selectExpr("id", "struct(id AS inner, array(id) AS list) AS nested")
        rows.write.format("headrace").mode(mode).save(path)
        assert DeltaTable(path).to_pyarrow_table().num_rows == count


class Job:
    """A topic archived by a faulty sink; run it until it ends, then look."""

    def __init__(
        self, spark: SparkSession, source: dict[str, str], sink: dict[str, str], *columns: str
    ) -> None:
        self._spark, self._source, self._sink, self._columns = spark, source, sink, columns

    def run(self) -> None:
        spark_faults.register(self._spark)
        rows = stream(self._spark, self._source).selectExpr(*self._columns)
        finish(rows.writeStream.format(spark_faults.NAME).options(**self._sink))


@pytest.mark.parametrize("point", spark_faults.POINTS)
def test_trap_2_and_3_a_table_has_each_row_once_wherever_a_batch_fails(
    spark: SparkSession,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: spark_faults.Point,
) -> None:
    """Task failures are retried by Spark; after a failed commit it calls abort and gives up."""
    topic, marker = make_topic(partitions=2), tmp_path / "marker"
    for partition in (0, 1):
        send(client, topic, numbered(300), partition=partition)
    sink = {"path": str(tmp_path / "table"), "checkpointLocation": checkpoint}
    sink |= fault_options(point, marker)
    job = Job(spark, from_start(to, topic, maxOffsetsPerTrigger=200), sink, "*")
    spark_faults.arm(marker)
    if point.startswith("task"):
        job.run()
    else:
        with pytest.raises(StreamingQueryException, match="InjectedFault"):
            job.run()
        job.run()
    assert not marker.exists()
    found = compare(places(client, topic), archived(tmp_path / "table"))
    assert found == Compared(lost=0, doubled=0, strange=0)
    if point.endswith("commit"):
        known = {Path(each).name for each in DeltaTable(tmp_path / "table").file_uris()}
        assert parquet_files(tmp_path / "table") == known, "abort has cleared away what it may"


def test_a_topic_sink_loses_nothing_when_a_task_is_tried_again(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    target, marker = make_topic(), tmp_path / "marker"
    send(client, topic, numbered(600))
    sink = to(topic=target, checkpointLocation=checkpoint) | fault_options("task-end", marker)
    source = from_start(to, topic, maxOffsetsPerTrigger=200)
    spark_faults.arm(marker)
    Job(spark, source, sink, "value").run()
    found = compare(numbered(600), [each.value for each in records(client, target)])
    assert (found.lost, found.strange) == (0, 0)
    assert found.doubled == 200, "the task had written all of its rows when it failed"
