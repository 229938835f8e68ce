"""A real standalone cluster on loopback: executors in processes of their own, and one that dies.

The cluster and one driver are started once for this module. A worker that a test has killed is
replaced before the next test, so the order does not matter.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.client import Client
from headrace.spark.archive import verify
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import archived, from_start, places, records
from tests.support.groups import required
from tests.support.spark_cluster import (
    EXECUTORS,
    StandaloneCluster,
    standalone_cluster,
    wait_for,
)
from tests.support.spark_drivers import Driver
from tests.support.spark_faults import Compared, Point, arm, compare, fault_options, held
from tests.support.spark_readers import numbered, send
from tests.support.tools import java

PATIENCE_SECONDS = 120

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    required(java)
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def shared_driver(
    cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    log = tmp_path_factory.mktemp("driver") / "driver.out"
    with Driver(cluster.url, log, EXECUTORS) as driver:
        yield driver


@pytest.fixture
def driver(cluster: StandaloneCluster, shared_driver: Driver) -> Driver:
    """The driver with all its executors."""
    cluster.make_whole()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while shared_driver.call("executors") != 2:
        assert time.monotonic() < deadline, shared_driver.log_tail()
        time.sleep(0.1)
    return shared_driver


def filled(client: Client, topic: str, count: int = 300) -> None:
    for partition in (0, 1):
        send(client, topic, numbered(count, partition * count), partition=partition)


def test_a_batch_is_read_by_executors_in_processes_of_their_own(
    cluster: StandaloneCluster, driver: Driver, client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=2)
    filled(client, topic)
    found = driver.call("read", options=to(subscribe=topic, minPartitions=2))
    told = compare(places(client, topic), [(partition, offset) for partition, offset, _ in found])
    assert told == Compared(0, 0, 0)
    workers = {cluster.worker_of(pid) for _, _, pid in found}
    assert len(workers) == 2, "both workers had a task"
    assert None not in workers, "and nobody else"


def test_a_stream_goes_from_topic_to_topic_by_way_of_executors(
    driver: Driver, client: Client, make_topic: TopicMaker, to: Options, checkpoint: str
) -> None:
    topic, target = make_topic(partitions=2), make_topic(partitions=2)
    filled(client, topic)
    batches = driver.call(
        "stream",
        source=from_start(to, topic, maxOffsetsPerTrigger=200),
        sink=to(topic=target, checkpointLocation=checkpoint),
        columns=["value"],
    )
    assert batches == 3
    found = compare(numbered(600), [each.value for each in records(client, target)])
    assert found == Compared(0, 0, 0), "at least once, and nothing failed: once"


class KilledWorker:
    """A stream on a cluster whose worker dies at a point of batch 1, and that goes on without."""

    def __init__(self, cluster: StandaloneCluster, driver: Driver, tmp_path: Path) -> None:
        self._cluster, self._driver = cluster, driver
        self._marker = tmp_path / "marker"

    def run(self, point: Point, source: dict[str, str], sink: dict[str, str], **more: Any) -> None:
        fault = fault_options(point, self._marker)
        side = "source" if point == "reading" else "sink"
        source, sink = (source | fault, sink) if side == "source" else (source, sink | fault)
        arm(self._marker, hold=True)
        self._driver.begin("stream", source=source, sink=sink, faulty=side, **more)
        victim = self._cluster.worker_of(int(wait_for(held(self._marker))))
        assert victim is not None, "the task runs on no worker"
        self._cluster.kill_worker(victim)
        assert self._driver.result() >= 3


def _worker_cases() -> list[Any]:
    points: tuple[Point, ...] = ("reading", "task-start", "task-middle", "task-end")
    return [
        point if point == "task-middle" else pytest.param(point, marks=pytest.mark.long)
        for point in points
    ]


@pytest.mark.parametrize("point", _worker_cases())
def test_a_worker_killed_in_the_middle_leaves_each_row_in_the_table_once(
    cluster: StandaloneCluster,
    driver: Driver,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    topic, table = make_topic(partitions=2), tmp_path / "table"
    filled(client, topic)
    KilledWorker(cluster, driver, tmp_path).run(
        point,
        from_start(to, topic, maxOffsetsPerTrigger=200),
        {"path": str(table), "checkpointLocation": checkpoint},
        columns=["*"],
    )
    assert compare(places(client, topic), archived(table)) == Compared(0, 0, 0)
    assert all(each.is_whole for each in verify(table))


@pytest.mark.long
@pytest.mark.parametrize("point", ["reading", "task-start", "task-middle", "task-end"])
def test_a_worker_killed_in_the_middle_costs_no_row_on_its_way_to_a_topic(
    cluster: StandaloneCluster,
    driver: Driver,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    topic, target = make_topic(partitions=2), make_topic(partitions=2)
    filled(client, topic)
    KilledWorker(cluster, driver, tmp_path).run(
        point,
        from_start(to, topic, maxOffsetsPerTrigger=200),
        to(topic=target, checkpointLocation=checkpoint),
        columns=["value"],
    )
    found = compare(numbered(600), [each.value for each in records(client, target)])
    assert (found.lost, found.strange) == (0, 0)
    # Only the rows of the task that died may come twice, and at its end they all do.
    assert found.doubled <= 100
    assert found.doubled == 100 or point != "task-end"


@pytest.mark.long
def test_a_worker_killed_in_the_middle_leaves_each_row_in_parquet_once(
    cluster: StandaloneCluster,
    driver: Driver,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    topic, path = make_topic(partitions=2), tmp_path / "parquet"
    filled(client, topic)
    KilledWorker(cluster, driver, tmp_path).run(
        "reading",
        from_start(to, topic, maxOffsetsPerTrigger=200),
        {"path": str(path), "checkpointLocation": checkpoint},
        columns=["*"],
        sink_format="parquet",
    )
    assert [(each.rows, each.is_whole) for each in verify(path)] == [(300, True)] * 2
    assert sum(pq.read_metadata(each).num_rows for each in path.glob("*.parquet")) >= 600


@pytest.mark.long
@pytest.mark.parametrize("point", ["reading", "task-middle", "task-end"])
def test_a_worker_killed_in_the_middle_changes_no_count(
    cluster: StandaloneCluster,
    driver: Driver,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
    tmp_path: Path,
    point: Point,
) -> None:
    """State and shuffled rows go with it: Spark runs whole stages again."""
    topic, table = make_topic(partitions=2), tmp_path / "table"
    for partition in (0, 1):
        values = [b"%d" % (number % 7) for number in range(300)]
        send(client, topic, values, partition=partition)
    KilledWorker(cluster, driver, tmp_path).run(
        point,
        from_start(to, topic, maxOffsetsPerTrigger=200),
        {"path": str(table), "checkpointLocation": checkpoint},
        columns=["CAST(value AS STRING) AS value"],
        count_by="value",
    )
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    wanted = Counter(str(number % 7) for number in range(300) for _ in (0, 1))
    assert sorted((row["value"], row["count"]) for row in rows) == sorted(wanted.items())
