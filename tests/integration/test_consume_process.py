"""`headrace consume` as a process: signals, and brokers that go away and come back."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.client import Client
from headrace.testing import Broker

WAIT_SECONDS = 30


@contextmanager
def consuming(broker: Broker, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headrace", "consume", *options]
    process = subprocess.Popen(
        [*command, "-b", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(stream: object) -> str:
    """The next line; the time limit of the test run is the one for it."""
    assert hasattr(stream, "readline")
    return str(stream.readline())


def send(broker: Broker, topic: str, value: bytes) -> None:
    with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        producer.send_and_wait(topic, value)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_consumer_that_is_told_to_end_leaves_its_group(
    headrace_broker: Broker,
    headrace_topic: str,
    protocol: str,
    number: signal.Signals,
    code: int,
) -> None:
    send(headrace_broker, headrace_topic, b"one")
    group = f"g-{headrace_topic}"
    options = ["-g", group, "--group-protocol", protocol, "-F"]
    with consuming(headrace_broker, headrace_topic, *options) as process:
        assert line_of(process.stdout) == "one\n", "a pipe sees it at once"
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == code
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    with Client(headrace_broker.bootstrap_servers) as client:
        assert client.admin.describe_groups([group])[group].members == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_consumer_that_is_told_to_end_while_it_joins_leaves_its_group(
    number: signal.Signals, code: int
) -> None:
    with (
        Broker(settings={"group.initial.rebalance.delay.ms": 60_000}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        topic = broker.create_topic("orders")
        with consuming(broker, topic, "-g", "g", "-F") as process:
            while not has_members(client, "g"):
                time.sleep(0.01)
            process.send_signal(number)
            assert process.wait(WAIT_SECONDS) == code
        assert not has_members(client, "g")


def has_members(client: Client, group: str) -> bool:
    if not any(each.group_id == group for each in client.admin.list_groups()):
        return False
    return bool(client.admin.describe_groups([group])[group].members)


@pytest.mark.parametrize("options", [[], ["-g", "g"]])
def test_a_lost_broker_is_told_and_its_return_too(options: list[str]) -> None:
    with Broker() as broker:
        topic = broker.create_topic("orders")
        send(broker, topic, b"one")
        with consuming(broker, topic, "-F", *options) as process:
            assert line_of(process.stdout) == "one\n"
            broker.kill()
            assert "broker lost, trying again" in line_of(process.stderr)
            broker.restart()
            send(broker, topic, b"two")
            assert "back again" in line_of(process.stderr)
            assert line_of(process.stdout) == "two\n"
