"""Brokers killed and started again in the middle of a batch: nothing lost, nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client import LATEST, Client, NewTopic, TopicPartition
from headrace.spark.archive import verify
from tests.integration.spark.test_sinks import archived, finish, places, records
from tests.support.brokers import HeadraceProcess
from tests.support.spark_faults import Compared, compare
from tests.support.spark_readers import numbered, send

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceProcess]:
    started = HeadraceProcess(tmp_path / "node")
    started.start()
    yield started
    started.kill()


class Restart:
    """A broker killed and started again, in a thread, as soon as something has begun."""

    def __init__(self, node: HeadraceProcess, begun: Callable[[], bool]) -> None:
        self._node, self._begun = node, begun
        self._over = threading.Event()
        self.happened = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Restart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._begun():
            if self._over.wait(0.01):
                return
        if not self._over.is_set():
            self._node.kill()
            self._node.start()
            self.happened = not self._over.is_set()


def test_a_broker_restarted_under_a_batch_costs_no_row(
    spark: SparkSession, node: HeadraceProcess
) -> None:
    """The producer goes on where it was: nothing lost, and its retries write nothing twice."""
    servers, count = node.bootstrap_servers, 400_000
    with Client(servers) as client:
        client.admin.create_topics([NewTopic("out", partitions=2)])
        rows = spark.range(count).selectExpr(
            "CAST(id AS STRING) AS key", "repeat('x', 200) AS value"
        )
        write = rows.write.format("headrace").mode("append").option("topic", "out")
        with Restart(node, lambda: _end(client, "out") > 0) as restart:
            write.option("kafka.bootstrap.servers", servers).save()
        assert restart.happened, "the rows were all written before the broker died"
    read = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    found = read.option("subscribe", "out").load().selectExpr("CAST(key AS STRING) AS id")
    wanted = [str(number) for number in range(count)]
    assert compare(wanted, [row.id for row in found.collect()]) == Compared(0, 0, 0)


def _end(client: Client, topic: str) -> int:
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    found = client.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return sum(each.offset for each in found.values())


def filled(spark: SparkSession, servers: str) -> DataFrame:
    """A stream in twelve batches over a topic of two partitions."""
    with Client(servers) as client:
        client.admin.create_topics([NewTopic("in", partitions=2)])
        for partition in (0, 1):
            send(client, "in", numbered(3000, 3000 * partition), partition=partition)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "in"}
    return (
        spark.readStream.format("headrace")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="500")
        .load()
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("sink", "sign"), [("headrace", "_delta_log"), ("parquet", "_spark_metadata")]
)
def test_a_broker_restarted_under_a_stream_leaves_each_row_in_files_once(
    spark: SparkSession,
    node: HeadraceProcess,
    checkpoint: str,
    tmp_path: Path,
    sink: str,
    sign: str,
) -> None:
    servers, path = node.bootstrap_servers, tmp_path / "rows"
    rows = filled(spark, servers)
    writer = rows.writeStream.format(sink).option("path", str(path))
    with Restart(node, (path / sign).exists) as restart:
        finish(writer.option("checkpointLocation", checkpoint))
    assert restart.happened, "the stream was over before the broker died"
    assert [(each.rows, each.is_whole) for each in verify(path)] == [(3000, True)] * 2
    if sink == "headrace":
        with Client(servers) as client:
            assert compare(places(client, "in"), archived(path)) == Compared(0, 0, 0)


@pytest.mark.long
def test_a_broker_restarted_under_a_stream_costs_no_row_from_topic_to_topic(
    spark: SparkSession, node: HeadraceProcess, checkpoint: str
) -> None:
    """Both ends are away at once; producers go on where they were, so nothing comes twice."""
    servers = node.bootstrap_servers
    rows = filled(spark, servers).select("value")
    with Client(servers) as client:
        client.admin.create_topics([NewTopic("out", partitions=2)])
        writer = rows.writeStream.format("headrace").option("kafka.bootstrap.servers", servers)
        with Restart(node, lambda: _end(client, "out") > 0) as restart:
            finish(writer.option("topic", "out").option("checkpointLocation", checkpoint))
        assert restart.happened, "the stream was over before the broker died"
        found = [each.value for each in records(client, "out")]
        assert compare(numbered(6000), found) == Compared(0, 0, 0)
