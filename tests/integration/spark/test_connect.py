"""Spark Connect: the client has no Java, and everything of ours runs at the server's end."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.testing import Broker
from tests.integration.spark.conftest import Options, TopicMaker
from tests.integration.spark.test_sinks import archived, from_start, places, records
from tests.support.groups import required
from tests.support.spark_connect import connect_server
from tests.support.spark_drivers import REPOSITORY, Driver, JobFailed
from tests.support.spark_faults import Compared, compare
from tests.support.spark_readers import numbered, send
from tests.support.tools import ToolOutOfReach, java

pytestmark = pytest.mark.timeout(600)


def packages() -> None:
    """What PySpark needs for a client of a Connect server."""
    if importlib.util.find_spec("grpc") is None:
        raise ToolOutOfReach("spark-connect", "pip install 'pyspark[connect]'")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Connect server."""
    required(java)
    required(packages)
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="module")
def connected(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A client process of the server."""
    with Driver(server, tmp_path_factory.mktemp("client") / "client.out") as client:
        yield client


def test_batches_are_read_and_written_by_way_of_a_server(
    connected: Driver, client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=2)
    connected.call("write", options=to(topic=topic), count=500)
    values = [each.value for each in records(client, topic)]
    assert compare([b"%d" % number for number in range(500)], values) == Compared(0, 0, 0)
    found = connected.call("read", options=to(subscribe=topic))
    read = [(partition, offset) for partition, offset, _ in found]
    assert compare(places(client, topic), read) == Compared(0, 0, 0)


def test_streams_go_to_tables_and_topics_by_way_of_a_server(
    connected: Driver,
    client: Client,
    make_topic: TopicMaker,
    to: Options,
    tmp_path: Path,
) -> None:
    topic, target = make_topic(partitions=2), make_topic()
    group = f"of-{topic}"
    for partition in (0, 1):
        send(client, topic, numbered(300, 300 * partition), partition=partition)
    source = from_start(to, topic, maxOffsetsPerTrigger=200, commitGroup=group)
    table = {"path": str(tmp_path / "table"), "checkpointLocation": str(tmp_path / "one")}
    connected.call("stream", source=source, sink=table, columns=["*"])
    assert compare(places(client, topic), archived(tmp_path / "table")) == Compared(0, 0, 0)
    assert [each.lag for each in client.admin.group_lag(group)] == [0, 0]

    sink = to(topic=target, checkpointLocation=tmp_path / "two")
    source = from_start(to, topic)
    connected.call("stream", source=source, sink=sink, columns=["value"])
    found = [each.value for each in records(client, target)]
    assert compare(numbered(600), found) == Compared(0, 0, 0)


@pytest.mark.long
def test_counts_in_update_mode_go_to_a_topic_by_way_of_a_server(
    connected: Driver,
    client: Client,
    topic: str,
    make_topic: TopicMaker,
    to: Options,
    checkpoint: str,
) -> None:
    target = make_topic()
    for _ in range(2):
        send(client, topic, [b"a", b"b", b"a"])
        source = from_start(to, topic)
        connected.call("count_values", source=source, sink=to(topic=target), checkpoint=checkpoint)
    assert {each.key: each.value for each in records(client, target)} == {b"a": b"4", b"b": b"2"}


@pytest.mark.long
def test_a_pipeline_runs_by_way_of_a_server_unchanged(
    server: str, broker: Broker, client: Client, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, target = make_topic(partitions=2), make_topic()
    for partition in (0, 1):
        send(client, topic, [b'{"n": %d}' % number for number in range(50)], partition=partition)
    (tmp_path / "numbers.yaml").write_text(
        f"""
name: numbers
bootstrap_servers: {broker.bootstrap_servers}
checkpoint: {tmp_path}/checkpoints
source:
  topics: [{topic}]
  from: earliest
  value: {{format: json, schema: "n int"}}
sinks:
  - delta: {{path: {tmp_path}/table}}
  - topic: {{name: {target}, value: json}}
"""
    )
    words = ["pipeline", "run", "numbers.yaml", "--once", "--master", server]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert compare(places(client, topic), archived(tmp_path / "table")) == Compared(0, 0, 0)
    assert len(records(client, target)) == 100


@pytest.mark.long
def test_the_guide_connects_to_a_server(
    server: str, broker: Broker, client: Client, make_topic: TopicMaker
) -> None:
    topic = make_topic(partitions=2)
    send(client, topic, numbered(7))
    page = (REPOSITORY / "docs" / "spark-cluster.md").read_text()
    section = page[page.index("## Spark Connect") :]
    program = section[section.index("```python\n") + len("```python\n") :].partition("```")[0]
    program = program.replace("sc://connect:15002", server).replace('"orders"', f'"{topic}"')
    program = program.replace("broker:9092", broker.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_a_wrong_option_is_told_to_the_client(connected: Driver, to: Options) -> None:
    with pytest.raises(JobFailed, match="did you mean 'startingOffsets'"):
        connected.call("read", options=to(subscribe="t", startingOffset="earliest"))
