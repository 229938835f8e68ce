"""An example run by the command line, killed in the middle and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.spark.progress.history import History, history_of
from headrace.testing import Broker
from tests.integration.spark.test_examples import EXAMPLES, MINUTE, clicks, counts, send, time_of
from tests.integration.spark.test_sinks import records
from tests.support.groups import required
from tests.support.processes import free_port
from tests.support.tools import java

PATIENCE_SECONDS = 240


def started(broker: Broker, data: Path, *options: str) -> subprocess.Popen[bytes]:
    """The pipeline in a group of processes of its own, Java included."""
    command = [sys.executable, "-m", "headrace", "pipeline", "run"]
    return subprocess.Popen(
        [*command, str(EXAMPLES / "window-counts.yaml"), *options],
        env={**os.environ, "BOOTSTRAP_SERVERS": broker.bootstrap_servers, "DATA": str(data)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[bytes], holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert process.poll() is None, f"the pipeline ended with {process.returncode}"
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_pipeline_ends_with_right_counts_and_one_history(tmp_path: Path) -> None:
    required(java)
    report = tmp_path / "counts.html"
    first, second = clicks(400, seed=11), clicks(400, seed=12)
    port = free_port()
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        for topic in ("clicks", "clicks.by_item", "clicks.bad"):
            broker.create_topic(topic)
        send(client, "clicks", first)
        options = ("--report", str(report), "--metrics", str(port))
        process = started(broker, tmp_path, *options)
        try:
            history = history_of(report)
            wait_for(process, lambda: bool(History(history).batches), "a first batch")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as told:
                assert b'headrace_pipeline_rows_total{query="window-counts-topic"}' in told.read()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        send(client, "clicks", second)
        process = started(broker, tmp_path, "--once", *options)
        assert process.wait(PATIENCE_SECONDS) == 0
        newest = {
            each.key: json.loads(each.value or b"") for each in records(client, "clicks.by_item")
        }
    found = {
        (time_of(row["minute"]), row["item"]): (row["clicks"], row["sales"])
        for row in newest.values()
    }
    assert found == counts([*first, *second], MINUTE)
    batches = History(history_of(report)).batches
    assert len({each.run for each in batches}) == 2
    assert sum(each.rows for each in batches) == 800
    assert batches[-1].lag == {"clicks": 0}
    assert "1 restart<" in report.read_text()
