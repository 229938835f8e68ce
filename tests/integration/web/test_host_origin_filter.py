"""Whom the HTTP API answers, and what it holds against those who misbehave."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import psutil
import pytest

from headrace.client import Client
from headrace.testing import Broker
from headrace.web.settings import WebSettings
from tests.support.web import Web, local_web, remote_web

IMPATIENT = WebSettings(
    request_timeout_ms=300, idle_timeout_ms=1000, stall_timeout_ms=500, streams_max=3
)


@pytest.fixture(scope="module")
def impatient() -> Iterator[Web]:
    """A listener whose patience is short enough for a test."""
    with Broker() as broker, remote_web(broker, IMPATIENT) as web:
        broker.create_topic("orders")
        yield web


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str | int]]:
    """Status and error of an answer after which the connection is closed."""
    received = b""
    while part := connection.recv(65536):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", ""]
)
def test_a_foreign_host_is_refused(web: Web, host: str) -> None:
    """A name that a website has made to point to this machine."""
    answer = web.ask("GET", "/topics", headers={"host": host})
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40302)
    assert "http.allowed.hosts" in answer.json()["hint"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:9", "127.9.9.9"])
def test_this_machine_is_answered(web: Web, host: str) -> None:
    assert web.ask("GET", "/topics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_from_elsewhere_are_refused(web: Web, headers: dict[str, str]) -> None:
    answer = web.ask("POST", "/topics", json={"name": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40303)


def test_its_own_pages_are_answered(web: Web) -> None:
    headers = {"origin": web.url, "sec-fetch-site": "same-origin"}
    assert web.ask("GET", "/topics", headers=headers).status_code == 200
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert web.ask("GET", "/docs", headers=followed).status_code == 200


def test_hosts_and_origins_can_be_allowed() -> None:
    settings = {
        "http.allowed.hosts": "broker.example",
        "http.allowed.origins": "http://app.example:3000",
    }
    with local_web(**settings) as web:
        headers = {"host": "broker.example:8080", "origin": "http://app.example:3000"}
        assert web.ask("GET", "/topics", headers=headers).status_code == 200
        headers["origin"] = "http://other.example"
        assert web.ask("GET", "/topics", headers=headers).status_code == 403


def test_pages_of_allowed_origins_can_use_what_they_are_answered() -> None:
    """A browser asks first, and shows a page only what is said to be for it."""
    page = "http://app.example:3000"
    with local_web(**{"http.allowed.origins": page}) as web:
        web.broker.create_topic("orders")
        asked = {
            "origin": page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,idempotency-key",
        }
        leave = web.ask("OPTIONS", "/topics/orders", headers=asked)
        assert leave.status_code == 204
        assert leave.headers["access-control-allow-origin"] == page
        assert "POST" in leave.headers["access-control-allow-methods"]
        assert "Content-Type" in leave.headers["access-control-allow-headers"]
        assert "Idempotency-Key" in leave.headers["access-control-allow-headers"]
        body = {"records": [{"value": 1}]}
        done = web.ask("POST", "/topics/orders", json=body, headers={"origin": page})
        assert done.headers["access-control-allow-origin"] == page
        read = web.ask(
            "GET", "/topics/orders/partitions/0/records?offset=0", headers={"origin": page}
        )
        assert read.headers["headrace-next-offset"] == "1"
        assert "Headrace-Next-Offset" in read.headers["access-control-expose-headers"]
        failed = web.ask("GET", "/topics/nowhere", headers={"origin": page})
        assert (failed.status_code, failed.headers["vary"]) == (404, "Origin")
        assert failed.headers["access-control-allow-origin"] == page
        for headers in ({**asked, "origin": "http://evil.example"}, {"origin": "null"}):
            refused = web.ask("OPTIONS", "/topics/orders", headers=headers)
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
        own = web.ask("GET", "/topics")
        assert own.headers["vary"] == "Origin"
        assert "access-control-allow-origin" not in own.headers


def test_without_allowed_origins_no_page_is_told_anything(web: Web) -> None:
    asked = {"origin": web.url, "access-control-request-method": "POST"}
    answer = web.ask("OPTIONS", "/topics/orders", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"PUBLISH topic message\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
def test_what_is_not_http_is_told_so_and_cut_off(web: Web, nonsense: bytes) -> None:
    with web.connect() as connection:
        connection.sendall(nonsense)
        connection.shutdown(socket.SHUT_WR)
        received = connection.recv(65536)
    assert received == b"" or b" 400 " in received.splitlines()[0]


def test_two_hosts_are_no_host(web: Web) -> None:
    with web.connect() as connection:
        connection.sendall(
            b"GET /topics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert answer_of(connection)[0] == 400


def test_headers_have_a_limit(web: Web) -> None:
    """In one header, in many, and in the path."""
    for sent in (
        b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
        b"GET /topics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000,
        b"GET /" + b"x" * 100_000,
    ):
        with web.connect() as connection:
            try:
                connection.sendall(sent)
                status, body = answer_of(connection)
            except ConnectionError:
                continue  # closed before all was sent
            assert (status, body["error_code"]) == (431, 43101)


def test_a_request_that_does_not_come_is_not_waited_for(impatient: Web) -> None:
    for sent in (b"", b"GET /topics HTT", b"GET /topics HTTP/1.1\r\nHost: loc"):
        with impatient.connect() as connection:
            connection.sendall(sent)
            assert answer_of(connection)[0] == 408


def test_a_body_that_stands_still_is_not_waited_for(impatient: Web) -> None:
    with impatient.connect() as connection:
        connection.sendall(
            b"POST /topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            b'Content-Type: application/json\r\n\r\n{"records":'
        )
        status, body = answer_of(connection)
    assert status == 408
    assert "stood still" in str(body["message"])


def test_a_body_that_comes_by_drops_is_not_waited_for(impatient: Web) -> None:
    """It never stands still for long, and would never be complete."""
    with impatient.connect() as connection:
        connection.sendall(
            b"POST /topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            b"Content-Type: application/json\r\n\r\n"
        )
        connection.settimeout(0.1)
        deadline = time.monotonic() + 20
        received = b""
        while not received and time.monotonic() < deadline:
            connection.sendall(b" ")
            with suppress(TimeoutError):
                received = connection.recv(65536)
    assert b" 408 " in received.splitlines()[0]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_large_bodies_are_held_only_to_a_limit(kind: str) -> None:
    """Many halves of bodies; small requests are served all the same."""
    settings = WebSettings(held_bytes_max=1_000_000)
    head = f"POST /topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    half = f"{head}Content-Length: 2000000\r\n\r\n".encode() + b" " * 700_000
    with Broker() as broker, remote_web(broker, settings) as web, web.connect() as first:
        broker.create_topic("orders")
        first.sendall(half)
        deadline = time.monotonic() + 20
        while True:
            with web.connect() as other:
                other.settimeout(1)
                with suppress(TimeoutError, ConnectionError):
                    other.sendall(half)
                    received = other.recv(65536)
                    break
            assert time.monotonic() < deadline
        assert b" 503 " in received.splitlines()[0]
        assert b"retry-after: 1" in received
        assert (
            web.ask("POST", "/topics/orders", json={"records": [{"value": 1}]}).status_code == 200
        )
        first.close()
        body = json.dumps({"records": [{"value": "x" * 700_000}]})
        headers = {"content-type": "application/json"}
        while web.ask("POST", "/topics/orders", content=body, headers=headers).status_code != 200:
            assert time.monotonic() < deadline, "what is gone is held no longer"


def test_a_connection_without_requests_is_closed(impatient: Web) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in connection.recv(65536)
        assert connection.recv(65536) == b""


def test_there_are_only_so_many_streams(impatient: Web) -> None:
    opened = [impatient.connect() for _ in range(3)]
    try:
        for each in opened:
            each.sendall(b"GET /topics/orders/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in each.recv(65536)
        refused = impatient.ask("GET", "/topics/orders/stream")
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42901)
    finally:
        for each in opened:
            each.close()
    # A client that has gone makes room at once.
    deadline = time.monotonic() + 10
    while "headrace_http_streams 0" not in impatient.ask("GET", "/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_that_does_not_read_is_cut_off(impatient: Web) -> None:
    """Its connection is full: memory stays where it is, and after a while it is dropped."""
    with Client(impatient.broker.bootstrap_servers) as client, client.producer() as producer:
        for _ in range(300):
            producer.send("orders", b"x" * 100_000)
        producer.flush()
    process = psutil.Process()
    with impatient.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = process.memory_info().rss
        connection.sendall(
            b"GET /topics/orders/stream?from=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        deadline = time.monotonic() + 20
        while "headrace_http_streams 0" not in (text := impatient.ask("GET", "/metrics").text):
            assert time.monotonic() < deadline, text[-300:]
            time.sleep(0.02)
        assert process.memory_info().rss - before < 20_000_000
    assert len(impatient.records("orders", count=5, max_bytes=1_000_000)) == 5


def test_a_broker_that_stops_ends_its_streams() -> None:
    with local_web() as web:
        web.broker.create_topic("orders")
        with web.client() as http, http.stream("GET", "/topics/orders/stream") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            started = time.monotonic()
            web.broker.restart()
            with suppress(httpx.RemoteProtocolError):
                assert not [line for line in lines if line.startswith("data")]
            assert time.monotonic() - started < 10
        assert web.ask("GET", "/topics").json() == ["orders"]
