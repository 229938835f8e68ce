"""Drivers killed at each point of a batch, and brokers that go away: what sinks hold afterwards.

A driver in a process of its own is killed with SIGKILL; the query then goes on from its
checkpoint, in the session that the tests share, and the sink is compared with the source offset
by offset. One case runs each time, the others in the long form.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client import LATEST, Client, NewTopic, TopicPartition
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import Job, archived, finish, from_start, places, records
from tests.support import spark_faults
from tests.support.brokers import HeadraceProcess
from tests.support.spark_faults import Compared, Point, compare, fault_options
from tests.support.spark_readers import numbered, send

DRIVER_SECONDS = 240
_REPOSITORY = Path(__file__).resolve().parents[3]


def killed(point: Point, *columns: str, **given: Any) -> None:
    """Run a driver until it dies of its fault."""
    request = json.dumps({"columns": columns or ["*"], **given})
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark_driver", request],
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = driver.communicate(timeout=DRIVER_SECONDS)
    finally:
        driver.kill()
    assert driver.returncode == -signal.SIGKILL, f"not killed at {point}: {said[-3000:]}"
    assert not Path(given["marker"]).exists()


def _cases() -> list[Any]:
    short = "after-commit"  # where a sink that only appends would write twice
    return [
        point if point == short else pytest.param(point, marks=pytest.mark.long)
        for point in spark_faults.POINTS
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", _cases())
def test_a_driver_killed_in_a_batch_leaves_each_row_in_the_table_once(
    spark: SparkSession,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    topic, marker = make_topic(partitions=2), tmp_path / "marker"
    for partition in (0, 1):
        send(client, topic, numbered(300), partition=partition)
    source = from_start(to, topic, maxOffsetsPerTrigger=200)
    sink = {"path": str(tmp_path / "table"), "checkpointLocation": checkpoint}
    sink |= fault_options(point, marker)
    killed(point, source=source, sink=sink, marker=str(marker))
    before = compare(places(client, topic), archived(tmp_path / "table"))
    assert before.lost == (200 if point == "after-commit" else 400), "it died in batch 1"
    Job(spark, source, sink, "*").run()
    after = compare(places(client, topic), archived(tmp_path / "table"))
    assert after == Compared(lost=0, doubled=0, strange=0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", spark_faults.POINTS)
def test_a_driver_killed_in_a_batch_loses_no_row_on_its_way_to_a_topic(
    spark: SparkSession,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    target, marker = make_topic(partitions=2), tmp_path / "marker"
    send(client, topic, numbered(600))
    source = from_start(to, topic, maxOffsetsPerTrigger=200)
    sink = to(topic=target, checkpointLocation=checkpoint) | fault_options(point, marker)
    killed(point, "value", source=source, sink=sink, marker=str(marker))
    Job(spark, source, sink, "value").run()
    found = compare(numbered(600), [each.value for each in records(client, target)])
    assert (found.lost, found.strange) == (0, 0)
    # At least once: what was acknowledged before the end is written a second time, and no more.
    assert found.doubled == (0 if point == "task-start" else 200)


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


@pytest.mark.timeout(600)
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_broker_restarted_under_a_stream_leaves_each_row_in_the_table_once(
    spark: SparkSession, node: HeadraceProcess, checkpoint: str, tmp_path: Path
) -> None:
    servers, table = node.bootstrap_servers, tmp_path / "table"
    with Client(servers) as client:
        client.admin.create_topics([NewTopic("in", partitions=2)])
        for partition in (0, 1):
            send(client, "in", numbered(3000), partition=partition)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "in"}
    rows = (
        spark.readStream.format("headrace")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="500")
        .load()
    )
    writer = rows.writeStream.format("headrace").option("path", str(table))
    with Restart(node, (table / "_delta_log").exists) as restart:
        finish(writer.option("checkpointLocation", checkpoint))
    assert restart.happened, "the stream was over before the broker died"
    with Client(servers) as client:
        assert compare(places(client, "in"), archived(table)) == Compared(0, 0, 0)
