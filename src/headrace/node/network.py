"""Listening addresses on the running event loop.

The loop is the seam to the network: uvloop or asyncio in production, a loop with an in-memory
network in the simulation. Nothing here or above touches a socket by itself.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listening:
    """An address that accepts connections until it is closed; its connections live on."""

    host: str
    port: int
    _server: asyncio.AbstractServer

    def close(self) -> None:
        """Stop accepting at once."""
        self._server.close()


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int
) -> Listening:
    """Accept connections on an address (port 0: any free one, told by the result)."""
    server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=backlog)
    bound = server.sockets[0].getsockname()[1]
    return Listening(host, bound, server)
