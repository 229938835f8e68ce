"""Listening addresses on the running event loop.

The loop is the interface to the network: uvloop or asyncio in production, a loop with an in-memory
network in the simulation. Nothing here or above touches a socket by itself.
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from socket import gaierror


class AddressUnusable(OSError):
    """An address that cannot be listened on; `strerror` says which, and why."""

    def __init__(self, error: OSError, host: str, port: int) -> None:
        super().__init__(error.errno, _failure(error, host, port))


def _failure(error: OSError, host: str, port: int) -> str:
    """The loops say it in many words, and of a host without an address not which."""
    if isinstance(error, gaierror):
        return f"there is no host {host!r} ({error.strerror})"
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is taken by another program"
    return f"{address}: {error.strerror or error}"


@dataclass(frozen=True, slots=True)
class BoundListener:
    """An address that accepts connections until it is closed; its connections live on."""

    host: str
    port: int
    _server: asyncio.AbstractServer

    def close(self) -> None:
        """Stop accepting at once."""
        self._server.close()


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int
) -> BoundListener:
    """Accept connections on an address (port 0: any free one, told by the result)."""
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(factory, host, port, backlog=backlog)
    except OSError as error:
        raise AddressUnusable(error, host, port) from error
    bound = server.sockets[0].getsockname()[1]
    return BoundListener(host, bound, server)
