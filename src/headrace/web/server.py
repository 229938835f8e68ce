"""The HTTP server: uvicorn's protocol on the running event loop, with limits of our own.

Only the protocol of uvicorn is used, not its server: that one wakes ten times a second, wants
the signals, and lets a connection take as long as it likes for its headers.
"""

import asyncio
import logging
from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headrace.core.runtime import Executor
from headrace.core.shared_calls import call_each
from headrace.web.app import create_app
from headrace.web.asgi import CONNECTION
from headrace.web.errors import ErrorBody
from headrace.web.host_origin_filter import DateHeader
from headrace.web.metrics import MetricsSource
from headrace.web.settings import WebSettings
from headrace.web.state import HttpState

if TYPE_CHECKING:
    from headrace.gateway import Gateway

logger = logging.getLogger(__name__)

# How long a stop waits for answers under way.
RESPONSES_SECONDS = 2.0


class HttpConnection(HttpToolsProtocol):
    """One connection: bounded headers, in bounded time, and errors as JSON."""

    settings: WebSettings
    date: DateHeader

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.settings.connections_max:
            self._refuse(503, 50302, "too many connections", "raise http.max.connections")
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_received()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._header_bytes >= 0 and not self.transport.is_closing():
            self._header_bytes += len(data)
            self.date.refresh()
        super().data_received(data)
        if self._header_bytes > self.settings.header_bytes_max and self._header_timer is not None:
            limit = self.settings.header_bytes_max
            self._refuse(431, 43101, f"the headers are larger than {limit} bytes", "")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]  # a key of our own
        if self._header_timer is None:
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._headers_received()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - as in the base
        self._refuse(400, 400, "this is not an HTTP/1.1 request", "see docs/http.md")

    def timeout_keep_alive_handler(self) -> None:
        self._headers_received()
        super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.settings.stall_timeout_ms / 1000
        self._stall_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _await_headers(self) -> None:
        self._header_bytes = 0
        seconds = self.settings.request_timeout_ms / 1000
        self._header_timer = self.loop.call_later(seconds, self._headers_late)

    def _headers_received(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        self._header_bytes = 0

    def _headers_late(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self._refuse(408, 408, "the request did not come in time", "")

    def _refuse(self, status: int, code: int, message: str, hint: str) -> None:
        """Answer without a request, and close."""
        self._headers_received()
        body = msgspec.json.encode(ErrorBody(code, message, hint))
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        self.transport.close()


class WebServer:
    """A listening HTTP API; `close` answers what is under way and lets consumers leave."""

    def __init__(
        self,
        http_state: HttpState,
        server_state: ServerState,
        server: asyncio.AbstractServer,
        host: str,
    ) -> None:
        self._http_state = http_state
        self._server_state = server_state
        self._server = server
        self.host = host
        self.port: int = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # of asyncio's server

    async def close(self) -> None:
        """Stop accepting, end streams, finish short answers."""
        self._server.close()
        self._http_state.stop_waiting()
        call_each(
            logger, "a connection", tuple(self._server_state.connections), methodcaller("shutdown")
        )
        tasks = set(self._server_state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=RESPONSES_SECONDS)
            for task in late:
                task.cancel()
        await self._http_state.close()
        self.abort()

    def abort(self) -> None:
        """Drop every connection at once."""
        self._server.close()
        transports = [connection.transport for connection in self._server_state.connections]
        call_each(logger, "a connection", filter(None, transports), methodcaller("abort"))


async def serve(
    gateway: "Gateway",
    settings: WebSettings,
    *,
    executor: Executor,
    sources: Sequence[MetricsSource] = (),
) -> WebServer:
    """Open the listener on the running loop; port 0 takes any free one.

    Time and chance are those of the gateway's client; `executor` loads what is needed late.
    """
    http_state = HttpState(gateway, settings, executor=executor, sources=sources)
    config = Config(
        create_app(http_state),
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=settings.idle_timeout_ms // 1000,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    config.load()
    server_state = ServerState()
    server_state.default_headers = []
    date = DateHeader(server_state.default_headers, http_state.clock)

    class Bound(HttpConnection):
        pass

    Bound.settings, Bound.date = settings, date
    # What a client does wrong is told to the client.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    quiet = logging.getLogger("uvicorn.access")
    quiet.propagate, quiet.handlers = False, []

    def connect() -> asyncio.Protocol:
        return Bound(config, server_state, {})

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(connect, settings.host, settings.port, backlog=1024)
    return WebServer(http_state, server_state, listening, settings.host)
