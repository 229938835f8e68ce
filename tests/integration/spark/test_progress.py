"""Progress of real queries: every figure compared with what was sent."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client import Client
from headrace.spark.progress import watch
from headrace.spark.progress.history import History, history_of
from headrace.testing import Broker
from tests.integration.spark.conftest import Options
from tests.integration.spark.test_connect import packages
from tests.support.config_effects import eventually
from tests.support.groups import required
from tests.support.spark_connect import connect_server
from tests.support.spark_readers import numbered, send
from tests.support.tools import java

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "pipelines-watch.md"
WATCHED = "tests.support.spark_watched"
FEEDER = "tests.support.spark_progress_feeder"


def from_zero(topic: str) -> str:
    """A start given as offsets: then the first batch has rows, and not only a start."""
    return json.dumps({topic: {"0": 0}})


def started(rows: DataFrame, name: str, checkpoint: str, mode: str = "append") -> StreamingQuery:
    return (
        rows.writeStream.format("noop")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def scraped(address: str | None) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("headrace_pipeline_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_rows_and_lag_of_every_batch_are_those_of_the_topic(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str, tmp_path: Path
) -> None:
    send(client, topic, numbered(250))
    options = to(subscribe=topic, startingOffsets=from_zero(topic), maxOffsetsPerTrigger=100)
    rows = spark.readStream.format("headrace").options(**options).load()
    report = tmp_path / "lag.html"
    with watch(spark, names={"lag"}, terminal=False, metrics="0", report=report) as watching:
        started(rows, "lag", checkpoint).awaitTermination()
        eventually(lambda: len(watching.history) == 3, "Spark tells of all batches")
        found = scraped(watching.metrics_address)
    batches = watching.history
    assert [each.rows for each in batches] == [100, 100, 50]
    assert [each.batch for each in batches] == [0, 1, 2]
    assert [each.lag for each in batches] == [{topic: 150}, {topic: 50}, {topic: 0}]
    assert [each.lag_before for each in batches] == [{topic: 250}, {topic: 150}, {topic: 50}]
    assert all(each.batch_ms > 0 and each.rows_per_second > 0 for each in batches)
    assert batches[0].at < batches[1].at < batches[2].at
    assert found["rows_total", "lag"] == 250
    assert found["lag_records", "lag", topic] == 0
    assert found["lag_before_records", "lag", topic] == 50
    assert found["batch_seconds_count", "lag"] == 3
    assert History(history_of(report)).batches == batches
    assert re.findall(r"<td>(.*?)</td>", report.read_text())[:3] == ["lag", "3", "250"]


def test_state_and_watermark_are_those_of_the_query(
    spark: SparkSession, client: Client, topic: str, to: Options, checkpoint: str
) -> None:
    send(client, topic, numbered(30))  # a millisecond apart
    counts = (
        spark.readStream.format("headrace")
        .options(**to(subscribe=topic, startingOffsets=from_zero(topic)))
        .load()
        .withWatermark("timestamp", "1 hour")
        .groupBy("timestamp")
        .count()
    )
    with watch(spark, names={"state"}, terminal=False) as watching:
        started(counts, "state", checkpoint, "update").awaitTermination()
    with_rows, *_, last = watching.history
    assert (with_rows.rows, with_rows.state_rows) == (30, 30)
    assert with_rows.state_bytes > 0
    assert with_rows.watermark is None
    assert last.watermark == 1_700_000_000.029 - 3600


def test_a_query_that_fails_is_told_of(
    spark: SparkSession,
    client: Client,
    topic: str,
    to: Options,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send(client, topic, numbered(3))
    options = to(subscribe=topic, startingOffsets=from_zero(topic))
    rows = spark.readStream.format("headrace").options(**options).load()
    broken = rows.selectExpr("assert_true(offset < 0)")
    watching = watch(spark, names={"broken"}, metrics="0")
    try:
        query = started(broken, "broken", checkpoint)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        address = watching.metrics_address
        eventually(lambda: not scraped(address)["running", "broken"], "Spark tells of the end")
        found = scraped(address)
    finally:
        watching.close()
    assert found["failures_total", "broken"] == 1
    start, end = capsys.readouterr().err.splitlines()
    assert start == "broken: started"
    assert end.startswith("broken: failed: ")


def test_the_guide_for_watching_does_what_it_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("orders")
        send(client, "orders", numbered(3))
        program = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
        program = program.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
        exec(compile(program, str(PAGE), "exec"), {"spark": spark})
    assert capsys.readouterr().out == "orders 0 0 {'orders': 3}\norders 1 3 {'orders': 0}\n"
    assert (tmp_path / "orders.html").exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_queries_are_watched_by_way_of_a_connect_server(
    client: Client, topic: str, broker: Broker, tmp_path: Path
) -> None:
    required(java)
    required(packages)
    send(client, topic, numbered(250))
    report = tmp_path / "watched.html"
    with connect_server(tmp_path) as address:
        arguments = [address, broker.bootstrap_servers, topic, str(report)]
        done = subprocess.run(
            [sys.executable, "-m", WATCHED, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    batches = History(history_of(report)).batches
    assert [each.rows for each in batches] == [100, 100, 50]
    assert [each.lag for each in batches] == [{topic: 150}, {topic: 50}, {topic: 0}]
    assert "watched: batch 2; 50 rows in " in done.stderr


def feeder(report: Path, batches: int, run: str) -> subprocess.Popen[str]:
    """A process that watches made-up batches, tells when they are in, and waits to be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", FEEDER, str(report), str(batches), run],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_after_its_batches(report: Path, batches: int, run: str) -> None:
    with feeder(report, batches, run) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fed\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL


def test_a_killed_driver_leaves_a_history_that_the_next_one_continues(tmp_path: Path) -> None:
    report = tmp_path / "clicks.html"
    killed_after_its_batches(report, 20, "aaaaaaaa-0000-0000-0000-00000000000a")
    killed_after_its_batches(report, 30, "aaaaaaaa-0000-0000-0000-00000000000b")
    found = History(history_of(report)).batches
    assert [(each.run[-1], each.batch) for each in found] == [
        *(("a", number) for number in range(20)),
        *(("b", number) for number in range(30)),
    ]
    # The page is no older than its interval: that of the second run has all of the first.
    assert "21 batches, 1 restart<" in report.read_text()
