"""The client for blocking code: sockets to brokers, metadata, and what is made of them."""

import inspect
import selectors
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.blocking.connection import BrokerConnection, PendingResponse
from headrace.client.blocking.reader import Reader
from headrace.client.core.cluster import BrokerAddress, Cluster, TopicState
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import BrokerUnreachable, CallTimedOut, ClientClosed
from headrace.client.core.lookups import ensure_topics, refresh_metadata
from headrace.client.core.models import OffsetSpec
from headrace.client.core.operations import (
    SHARED_CHANNEL,
    ClientOperation,
    Effect,
    SendAll,
    SendRequest,
    Session,
)
from headrace.client.core.settings import (
    ClientSettings,
    ProducerSettings,
    ReaderSettings,
    settings_from,
)
from headrace.client.system import SystemClock, SystemRandomness, sleep_ms
from headrace.client.tls import tls_context
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.core.runtime import Clock, Randomness
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.client.blocking.admin import Admin
    from headrace.client.blocking.consumer import Consumer
    from headrace.client.blocking.producer import Producer

T = TypeVar("T")


class Client:
    """A connection to a cluster; readers and the admin share its sockets and metadata.

        with Client("localhost:9092") as client:
            client.admin.create_topics([NewTopic("orders", partitions=3)])

    Use it from one thread at a time.
    """

    def __init__(
        self,
        target: str | Iterable[str] | ClientSettings,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.settings = settings_from(target)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._tls = tls_context(self.settings.security)
        self._connections: dict[tuple[NodeId, int], BrokerConnection] = {}
        self._channels = count(SHARED_CHANNEL + 1)
        self._owned: list[Producer | Reader | Consumer] = []
        self._closed = False
        self.now_ms = self._clock.monotonic_ms
        self.session = Session(
            settings=self.settings,
            cluster=Cluster(self.settings.addresses),
            randomness=SystemRandomness() if randomness is None else randomness,
            now_ms=self.now_ms,
            connected=self._connected,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @cached_property
    def admin(self) -> "Admin":
        """Topics, configs, records and what lies on disk."""
        # Not every program needs the admin's dozen messages: they are loaded when it is used.
        from headrace.client.blocking.admin import Admin

        return Admin(self)

    def producer(self, settings: ProducerSettings | None = None) -> "Producer":
        """A producer with connections and a thread of its own; closing it flushes."""
        # It brings the asyncio face along, which a program that only reads does not need.
        from headrace.client.blocking.producer import Producer

        producer = Producer(self.settings, settings or ProducerSettings())
        self._owned.append(producer)
        return producer

    def reader(
        self,
        assignment: Mapping[TopicPartition, int | OffsetSpec],
        settings: ReaderSettings | None = None,
    ) -> Reader:
        """A reader of these partitions, each from an offset, an end or a time."""
        reader = Reader(self, assignment, settings or ReaderSettings())
        self._owned.append(reader)
        return reader

    def consumer(self, settings: ConsumerSettings | str) -> "Consumer":
        """A member of a group (settings, or just its name), with a thread of its own."""
        from headrace.client.blocking.consumer import Consumer

        wanted = ConsumerSettings(settings) if isinstance(settings, str) else settings
        consumer = Consumer(self.settings, wanted)
        self._owned.append(consumer)
        return consumer

    def connect(self) -> None:
        """Reach any broker and learn the cluster, in one attempt; calls do it when they need it."""
        self.run(refresh_metadata(self.session, []))

    def topic(self, name: str, *, create: bool = False) -> TopicState:
        """The topic's partitions and leaders; with `create` it may be auto-created."""
        return self.run(ensure_topics(self.session, [name], create=create))[name]

    def close(self) -> None:
        """Close producers (flushing), readers, consumers (leaving their groups) and sockets."""
        if self._closed:
            return
        try:
            with ExitStack() as stack:  # all are closed, whatever one of them raises
                for part in reversed(self._owned):
                    stack.callback(part.close)
        finally:
            self._closed = True
            for connection in self._connections.values():
                connection.fail(ClientClosed("connection"))
            self._connections.clear()

    # -- driving the core

    def submit(self, send: SendRequest) -> PendingResponse:
        """Send one request; requests to one node keep their order."""
        try:
            return self._connection(send.node, send.channel).submit(send)
        except HeadraceError as error:
            pending = PendingResponse()
            pending.outcome = error
            return pending

    def wait(self, wait_ms: float) -> None:
        """Wait until an answer may have come, at most `wait_ms`; settles tickets."""
        waiting = [link for link in self._connections.values() if link.is_waiting]
        if not waiting:
            sleep_ms(wait_ms)
            return
        limit_ms = min(wait_ms, *(link.wait_limit_ms() for link in waiting))
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
        """Drive a flow of the core to its result, or raise CallTimedOut at the deadline."""
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
        while any(ticket.outcome is None for ticket in pending):
            self._check(deadline_ms)
            self.wait(deadline_ms - self.now_ms())
        return [ticket.outcome for ticket in pending]

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
            raise BrokerUnreachable(f"broker {node} is not in the cluster's metadata")
        connection = self._connections.get((node, channel))
        if connection is not None and self._is_usable(connection, address):
            return connection
        connection = BrokerConnection(address, self.settings, self._tls, self.now_ms)
        self._connections[node, channel] = connection
        return connection

    def _is_usable(self, connection: BrokerConnection, address: BrokerAddress) -> bool:
        if connection.is_closed:
            return False
        if connection.address.is_same_address(address) and (
            connection.is_waiting
            or self.now_ms() - connection.last_used_ms < self.settings.connection_idle_ms_max
        ):
            return True
        connection.fail(ClientClosed("connection"))
        return False

    def _connected(self) -> list[NodeId]:
        return [
            node
            for (node, channel), link in self._connections.items()
            if channel == SHARED_CHANNEL and not link.is_closed
        ]
