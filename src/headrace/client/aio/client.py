"""The client for asyncio: links to brokers, the metadata cache, and everything made from them."""

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.aio.connection import (
    BrokerConnection,
    Connect,
    ConnectionFactory,
    ResponseFuture,
    SocketConnection,
    connect_with_loop,
)
from headrace.client.aio.reader import AsyncReader
from headrace.client.core.cluster import BrokerAddress, Cluster, TopicState
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import ClientClosed, ConnectFailed
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
from headrace.client.system import SystemClock, SystemRandomness
from headrace.client.tls import tls_context
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.core.runtime import Clock, Randomness
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.client.aio.admin import AsyncAdmin
    from headrace.client.aio.consumer import AsyncConsumer
    from headrace.client.aio.producer import AsyncProducer

T = TypeVar("T")


class AsyncClient:
    """A connection to a cluster; producers, readers and the admin share its links and metadata.

        async with AsyncClient("localhost:9092") as client:
            await client.admin.create_topics([NewTopic("orders", partitions=3)])

    Use it from one event loop. `connect`, `clock` and `randomness` are seams for tests; `links`
    is the seam for a way to brokers that is no socket.
    """

    def __init__(
        self,
        target: str | Iterable[str] | ClientSettings,
        *,
        connect: Connect | None = None,
        connection_factory: ConnectionFactory | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.settings = settings_from(target)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._connect: Connect = connect_with_loop if connect is None else connect
        self._tls = tls_context(self.settings.security)
        self._connection_factory = connection_factory
        self._connections: dict[tuple[NodeId, int], BrokerConnection] = {}
        self._channels = count(SHARED_CHANNEL + 1)
        self._owned: dict[AsyncProducer | AsyncReader | AsyncConsumer, None] = {}
        self._closed = False
        self.session = Session(
            settings=self.settings,
            cluster=Cluster(self.settings.addresses),
            randomness=SystemRandomness() if randomness is None else randomness,
            now_ms=self.now_ms,
            connected=self._connected,
        )

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @cached_property
    def admin(self) -> "AsyncAdmin":
        """Topics, configs, records and what lies on disk."""
        # Not every program needs the admin's dozen messages: they are loaded when it is used.
        from headrace.client.aio.admin import AsyncAdmin

        return AsyncAdmin(self)

    def producer(self, settings: ProducerSettings | None = None) -> "AsyncProducer":
        """A producer over this client's links; close it (or use `async with`) to flush."""
        from headrace.client.aio.producer import AsyncProducer

        producer = AsyncProducer(self, settings or ProducerSettings())
        self._owned[producer] = None
        return producer

    def reader(
        self,
        assignment: Mapping[TopicPartition, int | OffsetSpec],
        settings: ReaderSettings | None = None,
    ) -> AsyncReader:
        """A reader of these partitions, each from an offset, an end or a time."""
        reader = AsyncReader(self, assignment, settings or ReaderSettings())
        self._owned[reader] = None
        return reader

    def consumer(self, settings: ConsumerSettings | str) -> "AsyncConsumer":
        """A member of a group (settings, or just the group's name); subscribe it, then poll."""
        from headrace.client.aio.consumer import AsyncConsumer

        wanted = ConsumerSettings(settings) if isinstance(settings, str) else settings
        consumer = AsyncConsumer(self, wanted)
        self._owned[consumer] = None
        return consumer

    async def connect(self) -> None:
        """Reach any broker and learn the cluster, in one attempt; calls do it when they need it."""
        await self.run(refresh_metadata(self.session, []))

    async def topic(self, name: str, *, create: bool = False) -> TopicState:
        """The topic's partitions and leaders; with `create` it may be auto-created."""
        return (await self.run(ensure_topics(self.session, [name], create=create)))[name]

    async def close(self) -> None:
        """Close producers (flushing them), readers, consumers (leaving their groups) and links."""
        if self._closed:
            return
        try:
            async with AsyncExitStack() as stack:  # all are closed, whatever one of them raises
                for part in reversed(list(self._owned)):
                    stack.push_async_callback(part.close)
        finally:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
            for connection in connections:
                connection.close()
            for connection in connections:
                await connection.wait_closed()

    def unregister(self, part: "AsyncProducer | AsyncReader | AsyncConsumer") -> None:
        """A part has been closed by itself; the client need not do it again."""
        self._owned.pop(part, None)

    # -- driving the core

    def now_ms(self) -> float:
        """Milliseconds that only grow, by the loop's clock."""
        return asyncio.get_running_loop().time() * 1000

    def submit(self, send: SendRequest) -> ResponseFuture:
        """Send one request; requests to one node keep their order."""
        connection = self._connection(send.node, send.channel)
        if isinstance(connection, HeadraceError):
            response: ResponseFuture = asyncio.get_running_loop().create_future()
            response.set_exception(connection)
            return response
        return connection.submit(send)

    async def run(self, operation: ClientOperation[T]) -> T:
        """Drive a flow of the core to its result."""
        result: Any = None
        error: HeadraceError | None = None
        try:
            while True:
                effect = operation.send(result) if error is None else operation.throw(error)
                result, error = None, None
                try:
                    result = await self._perform(effect)
                except HeadraceError as failure:
                    error = failure
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            if inspect.getgeneratorstate(operation) == inspect.GEN_SUSPENDED:
                operation.close()

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, SendRequest):
            return await self.submit(effect)
        if isinstance(effect, SendAll):
            return await self._send_all(effect.requests)
        await asyncio.sleep(effect.ms / 1000)
        return None

    async def _send_all(
        self, requests: Sequence[SendRequest]
    ) -> list[Message | HeadraceError | None]:
        futures = [self.submit(ask) for ask in requests]
        if futures:
            await asyncio.wait(futures)
        outcomes: list[Message | HeadraceError | None] = []
        for future in futures:
            failure = future.exception()
            if failure is None:
                outcomes.append(future.result())
            elif isinstance(failure, HeadraceError):
                outcomes.append(failure)
            else:
                raise failure
        return outcomes

    def new_channel(self) -> int:
        """A number for connections that are not shared with anybody."""
        return next(self._channels)

    async def close_channel(self, channel: int) -> None:
        """Close the connections of a channel."""
        for key in [key for key in self._connections if key[1] == channel]:
            connection = self._connections.pop(key)
            connection.close()
            await connection.wait_closed()

    def _connection(self, node: NodeId, channel: int) -> BrokerConnection | HeadraceError:
        if self._closed:
            return ClientClosed()
        address = self.session.cluster.address(node)
        if address is None:
            return ConnectFailed(f"broker {node} is not in the cluster's metadata")
        connection = self._connections.get((node, channel))
        if (
            connection is None
            or connection.is_closed
            or not connection.address.is_same_address(address)
        ):
            if connection is not None:
                connection.close()
            connection = self._connections[node, channel] = self._new_connection(address)
        return connection

    def _new_connection(self, address: BrokerAddress) -> BrokerConnection:
        other = None if self._connection_factory is None else self._connection_factory(address)
        return other or SocketConnection(address, self.settings, self._tls, self._connect)

    def _connected(self) -> list[NodeId]:
        ready = [
            (link.in_flight, node)
            for (node, channel), link in self._connections.items()
            if link.is_ready and channel == SHARED_CHANNEL
        ]
        return [node for _, node in sorted(ready)]
