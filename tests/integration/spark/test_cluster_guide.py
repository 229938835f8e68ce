"""The commands of docs/spark-cluster.md, run on a cluster; and a pipeline, which runs there too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import archived, places
from tests.support.groups import required
from tests.support.spark_cluster import EXECUTORS, StandaloneCluster, standalone_cluster
from tests.support.spark_drivers import REPOSITORY
from tests.support.spark_faults import Compared, compare
from tests.support.spark_jobs import QUICK_JVM
from tests.support.spark_readers import numbered, send
from tests.support.tools import java

COMMAND_SECONDS = 300
PAGE = REPOSITORY / "docs" / "spark-cluster.md"
QUICK = {**EXECUTORS, "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JVM}


pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    required(java)
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


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


def test_the_guide_runs_a_job_whose_environment_travels_as_an_archive(
    cluster: StandaloneCluster, broker: Broker, client: Client, tmp_path: Path
) -> None:
    """The archive holds a Python that stands for a packed one; how it is found is tested."""
    topic = broker.create_topic("orders", partitions=2)
    for partition in (0, 1):
        send(client, topic, numbered(100), partition=partition)
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


def test_a_pipeline_runs_on_a_cluster_unchanged(
    cluster: StandaloneCluster,
    broker: Broker,
    client: Client,
    make_topic: TopicMaker,
    tmp_path: Path,
) -> None:
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
