"""Connections to the nodes of a cluster, each made when first needed and again when it broke."""

import asyncio
from collections.abc import Callable
from itertools import count

from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId
from headrace.network.address import BrokerAddress
from headrace.network.connection import (
    BrokerConnection,
    Connect,
    ConnectionFactory,
    ResponseFuture,
    SocketConnection,
    connect_with_loop,
)
from headrace.network.errors import ClientClosed, ConnectFailed
from headrace.network.send_request import SHARED_CHANNEL, SendRequest
from headrace.network.settings import ConnectionSettings
from headrace.network.tls import tls_context


class ConnectionPool:
    """One connection for each node and channel; used from one event loop.

    `address_of` says where a node listens now: one that has moved gets a new connection.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        address_of: Callable[[NodeId], BrokerAddress | None],
        *,
        connect: Connect | None = None,
        connection_factory: ConnectionFactory | None = None,
    ) -> None:
        self._settings = settings
        self._address_of = address_of
        self._connect: Connect = connect_with_loop if connect is None else connect
        self._connection_factory = connection_factory
        self._tls = tls_context(settings.security)
        self._connections: dict[tuple[NodeId, int], BrokerConnection] = {}
        self._channels = count(SHARED_CHANNEL + 1)
        self._closed = False

    def submit(self, send: SendRequest) -> ResponseFuture:
        """Send one request; those of one channel to one node keep their order. Never waits."""
        connection = self._connection(send.node, send.channel)
        if isinstance(connection, HeadraceError):
            response: ResponseFuture = asyncio.get_running_loop().create_future()
            response.set_exception(connection)
            return response
        return connection.submit(send)

    def new_channel(self) -> int:
        """A number for connections that are not shared with anybody."""
        return next(self._channels)

    async def close_channel(self, channel: int) -> None:
        """Close the connections of a channel."""
        for key in [key for key in self._connections if key[1] == channel]:
            connection = self._connections.pop(key)
            connection.close()
            await connection.wait_closed()

    def ready_nodes(self) -> list[NodeId]:
        """Nodes with a ready shared connection, the least busy first."""
        ready = [
            (connection.in_flight, node)
            for (node, channel), connection in self._connections.items()
            if connection.is_ready and channel == SHARED_CHANNEL
        ]
        return [node for _, node in sorted(ready)]

    async def close(self) -> None:
        """Close all connections, for good; unanswered requests fail."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    def _connection(self, node: NodeId, channel: int) -> BrokerConnection | HeadraceError:
        if self._closed:
            return ClientClosed()
        address = self._address_of(node)
        if address is None:
            return ConnectFailed(f"broker {node} is not in the cluster's metadata")
        connection = self._connections.get((node, channel))
        if (
            connection is None
            or connection.is_closed
            or not connection.address.is_same_address(address)
        ):
            if connection is not None:
                connection.close(f"the broker is at {address} now")
            connection = self._connections[node, channel] = self._new_connection(address)
        return connection

    def _new_connection(self, address: BrokerAddress) -> BrokerConnection:
        other = None if self._connection_factory is None else self._connection_factory(address)
        return other or SocketConnection(address, self._settings, self._tls, self._connect)
