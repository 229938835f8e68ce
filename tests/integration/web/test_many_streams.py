"""A thousand streams that wait: little memory, hardly any CPU, and Kafka clients unharmed."""

import resource
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.testing.broker import free_port
from tests.support.brokers import HeadraceProcess
from tests.support.web import Web

STREAMS = 1000


@pytest.fixture(scope="module", autouse=True)
def _open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def produce_times_ms(bootstrap: str, count: int) -> list[float]:
    """How long single records take on the Kafka listener."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0})
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        producer.produce("orders", b"x" * 100)
        assert producer.flush(10) == 0
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def test_a_thousand_idle_streams_cost_little(tmp_path: Path) -> None:
    port = free_port()
    broker = HeadraceProcess(tmp_path / "data", {"http.listener": f"127.0.0.1:{port}"})
    broker.start()
    opened: list[socket.socket] = []
    try:
        with_streams = _crowd(broker, port, opened)
        assert with_streams[len(with_streams) // 2] < 10
    finally:
        for each in opened:
            each.close()
        broker.stop()


def _crowd(broker: HeadraceProcess, port: int, opened: list[socket.socket]) -> list[float]:
    from headrace.client import Client, NewTopic

    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topics([NewTopic("orders", partitions=1), NewTopic("quiet")])
    produce_times_ms(broker.bootstrap_servers, 20)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    before = broker.memory().total
    for _ in range(STREAMS):
        each = socket.create_connection(("127.0.0.1", port), timeout=30)
        each.sendall(b"GET /topics/quiet/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        opened.append(each)
    for each in opened:
        assert b" 200 " in each.recv(4096)
    grown = broker.memory().total - before
    assert grown < STREAMS * 60_000, f"{grown / STREAMS:,.0f} bytes for each stream"
    cpu = broker.cpu_seconds()
    started = time.monotonic()
    taken = sorted(produce_times_ms(broker.bootstrap_servers, 300))
    idle = 3.0
    time.sleep(idle)
    used = (broker.cpu_seconds() - cpu) / (time.monotonic() - started)
    assert used < 0.5, f"{used:.0%} of a core"
    # One record, and every stream has it.
    web = Web(url, broker)  # type: ignore[arg-type]  # only the address is used
    web.ask("POST", "/topics/quiet", json={"records": [{"value": "for all"}]})
    for each in opened:
        received = b""
        while b"for all" not in received:
            received += each.recv(4096)
    for each in opened:
        each.close()
    opened.clear()
    deadline = time.monotonic() + 20
    while "headrace_http_streams 0" not in web.ask("GET", "/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return taken
