"""A real standalone cluster on loopback: executors in processes of their own, and one that dies.

The cluster and one driver are started once for this module. A worker that a test has killed is
replaced before the next test, so the order does not matter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.client import Client
from headrace.spark.archive import verify
from headrace.testing import Broker
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import archived, from_start, places, records
from tests.support.groups import required
from tests.support.spark_cluster import (
    EXECUTORS,
    StandaloneCluster,
    standalone_cluster,
    wait_for,
)
from tests.support.spark_drivers import REPOSITORY, Driver
from tests.support.spark_faults import Compared, Point, arm, compare, fault_options, held
from tests.support.spark_jobs import QUICK_JVM
from tests.support.spark_readers import numbered, send
from tests.support.tools import java

PATIENCE_SECONDS = 120
COMMAND_SECONDS = 300

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


# -- the guide, and pipelines

PAGE = REPOSITORY / "docs" / "spark-cluster.md"
QUICK = {**EXECUTORS, "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JVM}


def block(title: str, language: str = "", containing: str = "") -> str:
    """The first block of a section, of a language, that holds some words."""
    [section] = [
        part
        for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
        if part.startswith(f"{title}\n")
    ]
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    texts: list[str] = [text for kind, text in found if kind == language]
    return next(each for each in texts if containing in each)


def ran(command: list[str], directory: Path) -> str:
    """Run a command to its end; what it said."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_guide_runs_a_job_whose_environment_travels_as_an_archive(
    cluster: StandaloneCluster, broker: Broker, client: Client, tmp_path: Path
) -> None:
    """The archive holds a Python that stands for a packed one; how it is found is tested."""
    cluster.make_whole()
    topic = broker.create_topic("orders", partitions=2)
    filled(client, topic)
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(python, "bin/python")
    job = block("Standalone", "python").replace("broker:9092", broker.bootstrap_servers)
    (tmp_path / "job.py").write_text(job.replace("/shared/", f"{tmp_path}/shared/"))
    submit = block("Pack the environment", containing="spark-submit").split()
    submit = [word.replace("spark://master:7077", cluster.url) for word in submit]
    settings = [word for pair in QUICK.items() for word in ("--conf", "=".join(pair))]
    ran([*submit[:-1], *settings, submit[-1]], tmp_path)
    table = tmp_path / "shared" / "orders"
    assert compare(places(client, topic), archived(table)) == Compared(0, 0, 0)
    assert [each.lag for each in client.admin.group_lag("orders-archive")] == [0, 0]


PIPELINE = """
name: on-a-cluster
bootstrap_servers: {servers}
checkpoint: {directory}/checkpoints
source:
  topics: [{topic}]
  from: earliest
  value: {{format: json, schema: "user string, item int"}}
steps:
  - filter: "item % 2 = 0"
sinks:
  - delta: {{path: {directory}/table}}
"""


@pytest.mark.long
def test_a_pipeline_runs_on_a_cluster_unchanged(
    cluster: StandaloneCluster,
    broker: Broker,
    client: Client,
    make_topic: TopicMaker,
    tmp_path: Path,
) -> None:
    cluster.make_whole()
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        values = [b'{"user":"u","item":%d}' % number for number in range(100)]
        send(client, topic, values, partition=partition)
    text = PIPELINE.format(servers=broker.bootstrap_servers, directory=tmp_path, topic=topic)
    (tmp_path / "orders.yaml").write_text(text)
    words = block("Standalone", containing="headrace pipeline").split()
    words = [word.replace("spark://master:7077", cluster.url) for word in words]
    settings = [word for pair in QUICK.items() for word in ("--set", "=".join(pair))]
    ran([sys.executable, "-m", *words, "--once", *settings], tmp_path)
    wanted = [(partition, offset) for partition in (0, 1) for offset in range(0, 100, 2)]
    assert compare(wanted, archived(tmp_path / "table")) == Compared(0, 0, 0)
