"""The client for blocking code: requests to a cluster's brokers, and what is made of them."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.client.blocking.cluster_requests import ClusterRequests
from headrace.client.blocking.reader import Reader
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

if TYPE_CHECKING:
    from headrace.client.blocking.admin import Admin
    from headrace.client.blocking.consumer import Consumer
    from headrace.client.blocking.producer import Producer


class Client:
    """A way to a cluster; readers and the admin share its sockets and metadata.

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
        self.requests = ClusterRequests(
            self.settings,
            clock=SystemClock() if clock is None else clock,
            randomness=SystemRandomness() if randomness is None else randomness,
        )
        self._owned: list[Producer | Reader | Consumer] = []
        self._closed = False

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

        return Admin(self.requests)

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
        reader = Reader(self.requests, assignment, settings or ReaderSettings())
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
        self.requests.run(refresh_metadata(self.requests.session, []))

    def topic(self, name: str, *, create: bool = False) -> TopicState:
        """The topic's partitions and leaders; with `create` it may be auto-created."""
        requests = self.requests
        return requests.run(ensure_topics(requests.session, [name], create=create))[name]

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
            self.requests.close()
