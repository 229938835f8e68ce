"""The client for asyncio: requests to a cluster's brokers, and everything made from them."""

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.aio.reader import AsyncReader
from headrace.client.core.cluster import TopicState
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.lookups import ensure_topics, refresh_metadata
from headrace.client.core.models import OffsetSpec
from headrace.client.core.settings import (
    ClientSettings,
    ProducerSettings,
    ReaderSettings,
    settings_from,
)
from headrace.client.system import SystemClock, SystemRandomness
from headrace.core.ids import TopicPartition
from headrace.core.runtime import Clock, Randomness
from headrace.network.connection import Connect, ConnectionFactory

if TYPE_CHECKING:
    from headrace.client.aio.admin import AsyncAdmin
    from headrace.client.aio.consumer import AsyncConsumer
    from headrace.client.aio.producer import AsyncProducer


class AsyncClient:
    """A way to a cluster; producers, readers and the admin share its connections and metadata.

        async with AsyncClient("localhost:9092") as client:
            await client.admin.create_topics([NewTopic("orders", partitions=3)])

    Use it from one event loop. `connect`, `clock` and `randomness` are for tests,
    `connection_factory` for a way to brokers that is no socket.
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
        self.requests = AsyncClusterRequests(
            self.settings,
            clock=self.clock,
            randomness=SystemRandomness() if randomness is None else randomness,
            connect=connect,
            connection_factory=connection_factory,
        )
        self._owned: dict[AsyncProducer | AsyncReader | AsyncConsumer, None] = {}
        self._closed = False

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

        return AsyncAdmin(self.requests)

    def producer(self, settings: ProducerSettings | None = None) -> "AsyncProducer":
        """A producer over this client's connections; close it (or use `async with`) to flush."""
        from headrace.client.aio.producer import AsyncProducer

        producer = AsyncProducer(self.requests, settings or ProducerSettings(), self._closed_itself)
        self._owned[producer] = None
        return producer

    def reader(
        self,
        assignment: Mapping[TopicPartition, int | OffsetSpec],
        settings: ReaderSettings | None = None,
    ) -> AsyncReader:
        """A reader of these partitions, each from an offset, an end or a time."""
        settings = settings or ReaderSettings()
        reader = AsyncReader(self.requests, assignment, settings, self._closed_itself)
        self._owned[reader] = None
        return reader

    def consumer(self, settings: ConsumerSettings | str) -> "AsyncConsumer":
        """A member of a group (settings, or just the group's name); subscribe it, then poll."""
        from headrace.client.aio.consumer import AsyncConsumer

        wanted = ConsumerSettings(settings) if isinstance(settings, str) else settings
        consumer = AsyncConsumer(self.requests, wanted, self._closed_itself)
        self._owned[consumer] = None
        return consumer

    async def connect(self) -> None:
        """Reach any broker and learn the cluster, in one attempt; calls do it when they need it."""
        await self.requests.run(refresh_metadata(self.requests.session, []))

    async def topic(self, name: str, *, create: bool = False) -> TopicState:
        """The topic's partitions and leaders; with `create` it may be auto-created."""
        requests = self.requests
        return (await requests.run(ensure_topics(requests.session, [name], create=create)))[name]

    async def close(self) -> None:
        """Close producers (flushing them), readers, consumers (leaving their groups)."""
        if self._closed:
            return
        try:
            async with AsyncExitStack() as stack:  # all are closed, whatever one of them raises
                for part in reversed(list(self._owned)):
                    stack.push_async_callback(part.close)
        finally:
            self._closed = True
            await self.requests.close()

    def _closed_itself(self, part: "AsyncProducer | AsyncReader | AsyncConsumer") -> None:
        """The client need not close it again."""
        self._owned.pop(part, None)
