"""`headrace top` against real brokers, with and without the metrics of an HTTP API."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace.cli.top.cluster_sample import sample_cluster
from headrace.cli.top.scraper import Scraper
from headrace.client import Client, NewTopic, TopicDescription, TopicPartition
from headrace.testing import Broker
from headrace.testing.broker import free_port

WAIT_SECONDS = 60


def top(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "top", "--interval", "0.2", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)


def as_json(*options: str) -> Any:
    done = top("--once", "--output", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A hundred records, of which a group has read sixty."""
    with Broker(http=True) as started:
        with Client(started.bootstrap_servers) as client:
            client.admin.create_topics([NewTopic("orders", partitions=1)])
            with client.producer() as producer:
                for number in range(100):
                    producer.send("orders", b"%d" % number)
            client.admin.alter_offsets("billing", {TopicPartition("orders", 0): 60})
        yield started


def test_one_picture_over_the_kafka_protocol_alone(broker: Broker) -> None:
    picture = as_json("--bootstrap", broker.bootstrap_servers, "--metrics", "off")
    [topic] = picture["topics"]
    assert (topic["topic"], topic["partitions"], topic["records"]) == ("orders", 1, 100)
    assert topic["size_bytes"] > 100
    assert topic["messages_in"] == 0
    assert [(each["group"], each["lag"]) for each in picture["groups"]] == [("billing", 40)]
    assert picture["requests"] is None
    assert picture["brokers"] == 1


def test_the_metrics_of_the_http_api_add_requests_and_connections(broker: Broker) -> None:
    picture = as_json(
        "--bootstrap", broker.bootstrap_servers, "--metrics", f"{broker.http_url}/metrics"
    )
    assert picture["requests"] > 0  # our own
    assert picture["connections"] >= 1
    assert picture["messages_out"] == 0


def test_a_picture_for_people(broker: Broker) -> None:
    done = top("--once", "--bootstrap", broker.bootstrap_servers, "--metrics", "off")
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout
    assert "billing" in done.stdout
    assert "lag" in done.stdout


def test_many_pictures_come_as_lines_until_nobody_reads(broker: Broker) -> None:
    command = [sys.executable, "-m", "headrace", "top", "--interval", "0.1"]
    command += ["--output", "json", "--bootstrap", broker.bootstrap_servers, "--metrics", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdout.close()
        process.wait(WAIT_SECONDS)
    assert len({line["time"] for line in lines}) == 3


def test_the_live_view_is_redrawn_in_a_terminal_and_control_c_ends_it(broker: Broker) -> None:
    command = [sys.executable, "-m", "headrace", "top", "--interval", "0.1"]
    command += ["--bootstrap", broker.bootstrap_servers, "--metrics", "off"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    try:
        with subprocess.Popen(command, stdout=theirs, env=environment) as process:
            os.close(theirs)
            seen = b""
            while seen.count(b"orders") < 3:
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # how a terminal says that nobody writes to it any more
                while data := os.read(ours, 65536):
                    seen += data
            assert process.wait(WAIT_SECONDS) == 0
    finally:
        os.close(ours)
    assert b"\x1b[?1049h" in seen  # a screen of its own...
    assert b"\x1b[?1049l" in seen  # ...and the old one back


def test_a_topic_that_goes_while_we_look_is_no_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(broker.bootstrap_servers) as client, Client(broker.bootstrap_servers) as other:
        client.admin.create_topics([NewTopic("passing", partitions=1)])
        listed = client.admin.list_topics

        def list_and_lose(**options: bool) -> list[TopicDescription]:
            found = listed(**options)
            if any(topic.name == "passing" for topic in found):
                other.admin.delete_topics(["passing"])
            return found

        monkeypatch.setattr(client.admin, "list_topics", list_and_lose)
        topics = sample_cluster(client, Scraper(None, required=False)).topics
    assert "orders" in topics
    assert "passing" not in topics


def test_where_nothing_answers_it_says_so() -> None:
    done = top("--once", "--bootstrap", f"127.0.0.1:{free_port()}")
    assert done.returncode == 3
    assert "no broker reached" in done.stderr
    assert "hint:" in done.stderr


def test_metrics_that_were_asked_for_must_be_there(broker: Broker) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = top("--once", "--bootstrap", broker.bootstrap_servers, "--metrics", url)
    assert done.returncode == 3
    assert url in done.stderr


@pytest.mark.parametrize(
    "wrong", [["--interval", "0"], ["--output", "xml"], ["--metrics", "nowhere"], ["--rows", "0"]]
)
def test_wrong_usage(broker: Broker, wrong: list[str]) -> None:
    assert top("--bootstrap", broker.bootstrap_servers, *wrong).returncode == 2
