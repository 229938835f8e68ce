"""The text listener's address: who is connected, how many may be, and who has fallen silent."""

import asyncio
import logging
from functools import partial

from headrace.core.shared_calls import call_each
from headrace.gateway import Gateway
from headrace.text import responses
from headrace.text.connection import TextConnection
from headrace.text.settings import TextSettings

logger = logging.getLogger(__name__)

__all__ = ["TextServer", "TextSettings", "serve"]

# Silent clients are looked for this often per time that they may be silent.
_CHECKS = 4
_CLOSE_SECONDS = 5


class TextServer:
    """The listener while it is open; made by `serve`."""

    def __init__(self, gateway: Gateway, settings: TextSettings) -> None:
        self.gateway = gateway
        self.settings = settings
        self.host = settings.host
        self.port = settings.port
        # Of lines and payloads that have arrived in part, over all clients.
        self.held_bytes = 0
        self._connections: dict[TextConnection, None] = {}
        # Sessions of clients that have gone: members take a moment to leave their groups.
        self._closing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._idle_check: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: TextConnection(self), self.settings.host, self.settings.port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._idle_check = loop.create_task(self._check_idle())

    async def close(self) -> None:
        """Stop listening, let go of every client; members leave their groups."""
        if self._server is not None:
            self._server.close()
        if self._idle_check is not None:
            self._idle_check.cancel()
        call_each(logger, "a client", tuple(self._connections), TextConnection.abort)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._connections or self._closing:
                    await asyncio.sleep(0)
                    if self._closing:
                        await asyncio.wait(self._closing)
        except TimeoutError:
            logger.warning("closing with clients connected: clients=%d", self.connections)

    def abort(self) -> None:
        """Drop every connection, as a crash would; members are missed when their sessions end."""
        if self._server is not None:
            self._server.close()
        if self._idle_check is not None:
            self._idle_check.cancel()
        call_each(logger, "a client", tuple(self._connections), TextConnection.abort)

    def admit(self, connection: TextConnection) -> bytes | None:
        """Count a client in; else the line that it is told."""
        limit = self.settings.connections_max
        if len(self._connections) >= limit:
            logger.warning("text listener refused a connection: client=%s", connection.client)
            return responses.refused(
                "TOO_MANY_CONNECTIONS",
                f"{limit} clients are connected; try again later",
                closes=True,
            )
        connection.silent_since = asyncio.get_running_loop().time()
        self._connections[connection] = None
        return None

    def remove(self, connection: TextConnection, ending: "asyncio.Task[None]") -> None:
        """A client has gone; what it began comes to its end in `ending`."""
        self._connections.pop(connection, None)
        self._closing.add(ending)
        ending.add_done_callback(self._closing.discard)

    async def _check_idle(self) -> None:
        """Close clients that neither ask nor read for too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.idle_seconds / _CHECKS)
            call_each(
                logger,
                "a client",
                tuple(self._connections),
                partial(self._close_if_idle, loop.time()),
            )

    def _close_if_idle(self, now: float, connection: TextConnection) -> None:
        limit = self.settings.idle_seconds
        if connection.is_alive or connection.is_busy:
            connection.is_alive = False
            connection.silent_since = now
        elif now - connection.silent_since >= limit:
            connection.close_with_error("SILENT_TOO_LONG", f"nothing came for {limit:g} seconds")


async def serve(gateway: Gateway, settings: TextSettings) -> TextServer:
    """Open the listener; it serves when this returns."""
    server = TextServer(gateway, settings)
    await server.open()
    return server
