"""What the keys about the HTTP API change, seen by its clients."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from headrace.testing.broker import free_port
from tests.support.brokers import HeadraceProcess
from tests.support.config_effects import effect_of
from tests.support.web import Web, local_web


@effect_of("http.listener")
def test_the_listener_is_where_it_is_wanted_or_off(tmp_path: Path) -> None:
    port = free_port()
    broker = HeadraceProcess(tmp_path / "data", {"http.listener": f"localhost:{port}"})
    broker.start()
    _wait(lambda: f"headrace: http://localhost:{port}/docs" in broker.log_path.read_text())
    assert httpx.get(f"http://localhost:{port}/readyz").status_code == 200
    assert broker.stop() == 0
    shut = HeadraceProcess(tmp_path / "shut", {"http.listener": "off"})
    shut.start()
    assert shut.stop() == 0
    assert "http://" not in shut.log_path.read_text()


def test_an_address_that_is_taken_is_refused_with_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ["--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}"]
        command = [sys.executable, "-m", "headrace", "serve", *options, "--http", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--http off" in done.stderr
    assert "Traceback" not in done.stderr


@effect_of("http.allowed.hosts", "http.allowed.origins")
def test_named_hosts_and_origins_are_answered() -> None:
    headers = {"host": "broker.example", "origin": "http://app.example"}
    with local_web() as web:
        assert web.ask("GET", "/topics", headers=headers).status_code == 403
    allowed = {"http.allowed.hosts": "broker.example", "http.allowed.origins": "http://app.example"}
    with local_web(**allowed) as web:
        assert web.ask("GET", "/topics", headers=headers).status_code == 200
        for name in headers:
            foreign = {**headers, name: "http://evil.example"}
            assert web.ask("GET", "/topics", headers=foreign).status_code == 403


@effect_of("http.max.body.bytes")
def test_a_larger_body_is_refused() -> None:
    with local_web(**{"http.max.body.bytes": "1000"}) as web:
        assert _produce(web, 800) == 200
        assert _produce(web, 1200) == 413


@effect_of("http.max.connections")
def test_one_connection_more_is_refused() -> None:
    with local_web(**{"http.max.connections": "2"}) as web:
        with web.connect(), web.connect(), web.connect() as third:
            received = third.recv(4096)
        assert b" 503 " in received
        assert json.loads(received.partition(b"\r\n\r\n")[2])["error_code"] == 50302
        _wait(lambda: _answers(web))


@effect_of("http.max.streams")
def test_one_stream_more_is_refused() -> None:
    with local_web(**{"http.max.streams": "1"}) as web, web.client() as http:
        web.broker.create_topic("orders")
        with http.stream("GET", "/topics/orders/stream") as first:
            assert first.status_code == 200
            assert web.ask("GET", "/topics/orders/stream").status_code == 429


@effect_of("http.max.consumer.instances")
def test_one_instance_more_is_refused() -> None:
    with local_web(**{"http.max.consumer.instances": "1"}) as web:
        assert web.ask("POST", "/consumers/a", json={}).status_code == 200
        assert web.ask("POST", "/consumers/a", json={}).status_code == 429


@effect_of("http.consumer.instance.timeout.ms")
def test_an_instance_that_is_not_used_for_so_long_is_closed() -> None:
    with local_web(**{"http.consumer.instance.timeout.ms": "2000"}) as web:
        base = web.ask("POST", "/consumers/a", json={}).json()["base_uri"]
        assert web.ask("GET", f"{base}/assignments").status_code == 200
        time.sleep(2.5)  # not a wait on a condition: to ask would be to use it
        assert web.ask("GET", f"{base}/assignments").status_code == 404


def _produce(web: Web, size: int) -> int:
    body = {"records": [{"value": "x" * size}]}
    return web.ask("POST", "/topics/orders", json=body).status_code


def _answers(web: Web) -> bool:
    try:
        return web.ask("GET", "/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)
