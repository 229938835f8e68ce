"""The broker in the test process: its life, its deaths, and the fixtures that hand it out."""

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.client import (
    EARLIEST,
    BrokerUnreachable,
    CallTimedOut,
    Client,
    ClientSettings,
    ConfigResource,
    ConfigResourceType,
    RequestTimedOut,
    TopicPartition,
)
from headrace.testing import Broker
from headrace.testing.plugin import topic_name

IMPATIENT_MS = 500
DONE = {"kill": "killed", "stop": "stopped", "pause": "paused"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def publish(broker: Broker, topic: str, *values: bytes) -> None:
    with Client(broker.bootstrap_servers) as client, client.producer() as producer:
        for value in values:
            producer.send_and_wait(topic, value)


def read(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    start = {TopicPartition(topic, 0): EARLIEST}
    with Client(broker.bootstrap_servers) as client, client.reader(start) as reader:
        values: list[bytes | None] = []
        while len(values) < count:
            for records in reader.poll(timeout_ms=1000).values():
                values += [record.value for record in records]
        return values


def impatient(broker: Broker) -> Client:
    return Client(
        ClientSettings(
            broker.bootstrap_servers,
            call_timeout_ms=IMPATIENT_MS,
            request_timeout_ms=IMPATIENT_MS,
        )
    )


def run_pytest(directory: Path, *options: str) -> str:
    """What a project's own pytest says when all of its tests have passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:randomly"]
    done = subprocess.run(
        [*command, *options], cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_broker_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        directory = Path(broker.data_dir)
        assert directory.exists()
        assert broker.is_running
    assert not directory.exists()
    assert set(threading.enumerate()) == before
    with pytest.raises(RuntimeError, match="not been started"):
        _ = broker.port


def test_a_key_by_its_old_name_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(http=True, settings={"http.body.bytes.max": "1MB"}):
        assert "key=http.body.bytes.max new=http.max.body.bytes" in caplog.text


async def test_a_broker_can_be_used_from_a_running_event_loop() -> None:
    async with Broker() as broker:
        port = broker.port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_a_clean_restart_keeps_port_and_records(broker: Broker) -> None:
    address = broker.bootstrap_servers
    topic = broker.create_topic("kept")
    publish(broker, topic, b"a", b"b")
    broker.restart()
    assert broker.bootstrap_servers == address
    assert read(broker, topic, 2) == [b"a", b"b"]


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_an_outage_keeps_ports_and_records(end: Callable[[Broker], None]) -> None:
    with Broker(http=True, text=True) as broker:
        places = (broker.port, broker.http_url, broker.text_address, broker.data_dir)
        topic = broker.create_topic("kept")
        with Client(broker.bootstrap_servers) as client, client.producer() as producer:
            producer.send_and_wait(topic, b"before")
            end(broker)
            assert not broker.is_running
            during = producer.send(topic, b"during")
            broker.start()
            during.result()
        assert (broker.port, broker.http_url, broker.text_address, broker.data_dir) == places
        assert read(broker, topic, 2) == [b"before", b"during"]
    assert not Path(places[-1]).exists()


def test_a_broker_without_a_context_lives_until_it_is_closed() -> None:
    broker = Broker()
    broker.start()
    directory = Path(broker.data_dir)
    broker.stop()
    assert directory.exists()
    broker.close()
    assert not directory.exists()


def test_the_data_of_a_broker_that_was_never_closed_goes_with_it() -> None:
    broker = Broker()
    broker.start()
    directory = Path(broker.data_dir)
    broker.kill()
    del broker
    gc.collect()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("end", "way"), [("kill", "start"), ("stop", "start"), ("pause", "resume")]
)
def test_a_topic_of_a_broker_that_cannot_answer_fails_at_once_and_says_what_to_do(
    end: str, way: str, broker: Broker, request: pytest.FixtureRequest
) -> None:
    getattr(broker, end)()
    said = f"the broker was {DONE[end]} in {request.node.nodeid}: call {way}() first"
    with pytest.raises(RuntimeError, match=re.escape(said)):
        broker.create_topic("orders")
    getattr(broker, way)()
    assert broker.outage is None
    assert broker.create_topic("orders") == "orders"


FORKING = """
import os, sys
from pathlib import Path
from headrace.testing import Broker

broker = Broker()
broker.start()
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
assert Path(broker.data_dir, "meta.properties").exists()
print(broker.data_dir)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_the_end_of_a_forked_child_leaves_the_data_to_its_parent() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).exists(), "and with the parent it goes"


def test_a_broker_that_was_never_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="has not been started"):
        Broker().create_topic("orders")


def test_a_killed_broker_is_gone_and_comes_back_with_its_records(broker: Broker) -> None:
    topic = broker.create_topic("kept")
    publish(broker, topic, b"a")
    broker.kill()
    assert not broker.is_running
    with impatient(broker) as client, pytest.raises((BrokerUnreachable, CallTimedOut)):
        client.admin.list_topics()
    broker.start()
    publish(broker, topic, b"b")
    assert read(broker, topic, 2) == [b"a", b"b"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(broker: Broker) -> None:
    with impatient(broker) as client:
        client.admin.list_topics()
        broker.pause()
        with pytest.raises((CallTimedOut, RequestTimedOut)):
            client.admin.list_topics()
    broker.resume()
    assert broker.create_topic("after") == "after"


def test_a_paused_broker_can_be_stopped() -> None:
    with Broker() as broker:
        broker.pause()
    assert not broker.is_running


def test_settings_and_data_directory_are_honoured(tmp_path: Path) -> None:
    settings: dict[str, str | int | bool] = {
        "num.partitions": 3,
        "auto.create.topics.enable": True,
        "node.id": "7",
        "log.retention.ms": "1h",
    }
    with (
        Broker(settings=settings, data_dir=tmp_path) as broker,
        Client(broker.bootstrap_servers) as client,
        client.producer() as producer,
    ):
        broker.create_topic("by-hand", configs={"segment.ms": "2m", "preallocate": True})
        resource = ConfigResource(ConfigResourceType.TOPIC, "by-hand")
        configs = client.admin.describe_configs([resource])[resource]
        assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("3600000", "120000")
        producer.send_and_wait("made-by-asking", b"x")
        described = client.admin.describe_topics(["made-by-asking"])["made-by-asking"]
        assert len(described.partitions) == 3
    assert (tmp_path / "made-by-asking-0").is_dir()


def test_a_durable_broker_serves_too() -> None:
    with Broker(durable=True) as broker:
        topic = broker.create_topic("durable")
        publish(broker, topic, b"a")
        assert read(broker, topic, 1) == [b"a"]


def test_topic_names_are_legal_and_never_repeat() -> None:
    names = [topic_name("test_x[a/b ☕]"), topic_name("test_x[a/b ☕]"), topic_name("x" * 300)]
    assert len(set(names)) == 3
    assert all(len(name) <= 249 for name in names)
    assert names[0].startswith("test_x-a-b")


def test_each_test_gets_a_topic_of_its_own(headrace_broker: Broker, headrace_topic: str) -> None:
    assert headrace_topic.startswith("test_each_test_gets_a_topic_of_its_own")
    publish(headrace_broker, headrace_topic, b"a")
    assert read(headrace_broker, headrace_topic, 1) == [b"a"]


@pytest.mark.parametrize("end", ["kill", "stop", "pause"])
def test_a_shared_broker_that_a_test_left_down_is_brought_back_for_the_next_topic(
    end: str, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_shared.py").write_text(
        "def test_culprit(headrace_broker, headrace_topic):\n"
        f"    headrace_broker.{end}()\n"
        "def test_next(headrace_broker, headrace_topic):\n"
        "    assert headrace_broker.create_topic('another') == 'another'\n"
        "def test_last(headrace_topic):\n"
        "    pass\n"
    )
    said = run_pytest(tmp_path)
    assert "3 passed, 1 warning" in said
    assert f"the shared broker was {DONE[end]} in test_shared.py::test_culprit" in said


def test_the_plugin_works_under_xdist_and_obeys_its_settings(tmp_path: Path) -> None:
    """Two workers, one broker each, configured by overriding a fixture."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def headrace_settings():\n"
        "    return {'message.max.bytes': '4321'}\n"
    )
    (tmp_path / "test_many.py").write_text(
        "import pytest\n"
        "from headrace.client import Client, ConfigResource, ConfigResourceType\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_the_limit_is_ours(number, headrace_broker, headrace_topic):\n"
        "    with Client(headrace_broker.bootstrap_servers) as client:\n"
        "        resource = ConfigResource(ConfigResourceType.TOPIC, headrace_topic)\n"
        "        configs = client.admin.describe_configs([resource])[resource]\n"
        "    assert configs['max.message.bytes'].value == '4321'\n"
    )
    assert "6 passed" in run_pytest(tmp_path, "-n", "2")
