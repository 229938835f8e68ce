"""HTTP APIs for tests: in the broker, and in a process of their own over the remote gateway."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from headrace.client import AsyncClient
from headrace.gateway import Gateway
from headrace.testing import Broker
from headrace.testing.broker import free_port
from headrace.testing.loop_thread import LoopThread
from headrace.web.server import WebServer, serve
from headrace.web.settings import WebSettings
from tests.support.metadata import InlineExecutor

FORMS = ("local", "remote")
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Web:
    """An HTTP API and the broker behind it."""

    url: str
    broker: Broker

    @property
    def address(self) -> tuple[str, int]:
        parsed = httpx.URL(self.url)
        assert parsed.port is not None
        return parsed.host, parsed.port

    def client(self, **settings: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=_SECONDS, **settings)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request on a connection of its own."""
        with self.client() as client:
            return client.request(method, path, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=_SECONDS)

    def records(self, topic: str, partition: int = 0, **query: Any) -> list[dict[str, Any]]:
        """What a partition holds."""
        path = f"/topics/{topic}/partitions/{partition}/records"
        answer = self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found


@contextmanager
def local_web(**settings: Any) -> Iterator[Web]:
    """The HTTP API in the broker's own process, with broker configs by name."""
    with Broker(http=True, settings=settings) as broker:
        yield Web(broker.http_url, broker)


@contextmanager
def remote_web(broker: Broker, settings: WebSettings | None = None) -> Iterator[Web]:
    """An HTTP API that reaches the broker as a client, on an event loop of its own."""
    thread = LoopThread("headrace-web")
    wanted = replace(settings or WebSettings(), port=free_port())

    async def open_server() -> tuple[Gateway, WebServer]:
        gateway = Gateway(AsyncClient(broker.bootstrap_servers))
        return gateway, await serve(gateway, wanted, executor=InlineExecutor())

    async def close_server(gateway: Gateway, server: WebServer) -> None:
        await server.close()
        await gateway.close()

    gateway, server = thread.run(open_server(), _SECONDS)
    try:
        yield Web(f"http://127.0.0.1:{server.port}", broker)
    finally:
        thread.run(close_server(gateway, server), _SECONDS)
        thread.close()


@contextmanager
def web_of_form(form: str) -> Iterator[Web]:
    """One of the two forms, with a broker of its own."""
    if form == "local":
        with local_web() as web:
            yield web
    else:
        with Broker() as broker, remote_web(broker) as web:
            yield web


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    id: str
    data: Any
    kind: str = "message"


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream, read as a browser reads them; those without data are left out."""
    last_id, kind, data = "", "message", ""
    for line in lines:
        if not line:
            if data:
                yield Event(last_id, json.loads(data), kind)
            kind, data = "message", ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value


async def until(ready: Any, seconds: float = _SECONDS) -> None:
    """Wait for something that a test cannot be told of."""
    async with asyncio.timeout(seconds):
        while not ready():
            await asyncio.sleep(0.005)
