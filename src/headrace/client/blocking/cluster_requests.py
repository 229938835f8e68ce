"""Requests to the brokers of a cluster: what readers and the admin stand on."""

import inspect
import selectors
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from headrace.client.blocking.connection import BrokerConnection, PendingResponse
from headrace.client.core.cluster import Cluster
from headrace.client.core.errors import CallTimedOut
from headrace.client.core.operations import ClientOperation, Effect, SendAll, Session
from headrace.client.core.settings import ClientSettings
from headrace.client.system import sleep_ms
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId
from headrace.core.runtime import Clock, Randomness
from headrace.network.address import BrokerAddress
from headrace.network.errors import ClientClosed, ConnectFailed, ConnectionLost
from headrace.network.send_request import SHARED_CHANNEL, SendRequest
from headrace.network.tls import tls_context
from headrace.protocol.message import Message

T = TypeVar("T")


class ClusterRequests:
    """Sockets to brokers, the metadata that says where they lead, and operations over both."""

    def __init__(self, settings: ClientSettings, *, clock: Clock, randomness: Randomness) -> None:
        self._connection_settings = settings.connection
        self._tls = tls_context(settings.security)
        self._connections: dict[tuple[NodeId, int], BrokerConnection] = {}
        self._channels = count(SHARED_CHANNEL + 1)
        self._closed = False
        self.now_ms = clock.monotonic_ms
        self.session = Session(
            settings=settings,
            cluster=Cluster(settings.addresses),
            randomness=randomness,
            now_ms=self.now_ms,
            connected=self._connected,
        )

    def close(self) -> None:
        """Close all sockets, for good; unanswered requests fail."""
        self._closed = True
        for connection in self._connections.values():
            connection.fail(ClientClosed("connection"))
        self._connections.clear()

    def submit(self, send: SendRequest) -> PendingResponse:
        """Send one request; requests to one node keep their order."""
        try:
            return self._connection(send.node, send.channel).submit(send)
        except HeadraceError as error:
            pending = PendingResponse()
            pending.outcome = error
            return pending

    def wait(self, wait_ms: float) -> None:
        """Wait until an answer may have come, at most `wait_ms`; settles what is pending."""
        waiting = [each for each in self._connections.values() if each.is_waiting]
        if not waiting:
            sleep_ms(wait_ms)
            return
        limit_ms = min(wait_ms, *(each.wait_limit_ms() for each in waiting))
        if len(waiting) == 1:
            waiting[0].receive(limit_ms)
            return
        with selectors.DefaultSelector() as selector:
            for connection in waiting:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            for ready, _ in selector.select(limit_ms / 1000):
                ready.data.receive(0)
        for connection in waiting:
            if not connection.is_closed and connection.wait_limit_ms() <= 0:
                connection.receive(0)

    def run(self, operation: ClientOperation[T], deadline_ms: float = float("inf")) -> T:
        """Drive an operation of the core to its result, or raise CallTimedOut at the deadline."""
        result: Any = None
        error: HeadraceError | None = None
        try:
            while True:
                effect = operation.send(result) if error is None else operation.throw(error)
                result, error = None, None
                try:
                    result = self._perform(effect, deadline_ms)
                except HeadraceError as failure:
                    error = failure
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            if inspect.getgeneratorstate(operation) == inspect.GEN_SUSPENDED:
                operation.close()

    def _perform(self, effect: Effect, deadline_ms: float) -> Any:
        if isinstance(effect, SendRequest):
            outcome = self._responses([effect], deadline_ms)[0]
            if isinstance(outcome, HeadraceError):
                raise outcome
            return outcome
        if isinstance(effect, SendAll):
            return self._responses(effect.requests, deadline_ms)
        left_ms = deadline_ms - self.now_ms()
        sleep_ms(min(effect.ms, max(left_ms, 0)))
        self._check(deadline_ms)
        return None

    def _responses(
        self, requests: Sequence[SendRequest], deadline_ms: float
    ) -> list[Message | HeadraceError | None]:
        pending = [self.submit(ask) for ask in requests]
        while any(each.outcome is None for each in pending):
            self._check(deadline_ms)
            self.wait(deadline_ms - self.now_ms())
        return [each.outcome for each in pending]

    def _check(self, deadline_ms: float) -> None:
        if self.now_ms() >= deadline_ms:
            raise CallTimedOut("the time for this call is up")

    def new_channel(self) -> int:
        """A number for connections that are not shared with anybody."""
        return next(self._channels)

    def close_channel(self, channel: int) -> None:
        """Close the connections of a channel."""
        for key in [key for key in self._connections if key[1] == channel]:
            self._connections.pop(key).fail(ClientClosed("connection"))

    def _connection(self, node: NodeId, channel: int) -> BrokerConnection:
        if self._closed:
            raise ClientClosed()
        address = self.session.cluster.address(node)
        if address is None:
            raise ConnectFailed(f"broker {node} is not in the cluster's metadata")
        connection = self._connections.get((node, channel))
        if connection is not None and self._is_usable(connection, address):
            return connection
        connection = BrokerConnection(address, self._connection_settings, self._tls, self.now_ms)
        self._connections[node, channel] = connection
        return connection

    def _is_usable(self, connection: BrokerConnection, address: BrokerAddress) -> bool:
        if connection.is_closed:
            return False
        if not connection.address.is_same_address(address):
            connection.fail(ConnectionLost(f"{connection.address} is no more: now at {address}"))
            return False
        idle_ms = self.now_ms() - connection.last_used_ms
        if connection.is_waiting or idle_ms < self._connection_settings.connection_idle_ms_max:
            return True
        connection.fail(ClientClosed("connection"))
        return False

    def _connected(self) -> list[NodeId]:
        return [
            node
            for (node, channel), each in self._connections.items()
            if channel == SHARED_CHANNEL and not each.is_closed
        ]
