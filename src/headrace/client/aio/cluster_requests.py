"""Requests to the brokers of a cluster: what everything that a client makes stands on."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

from headrace.client.core.cluster import Cluster
from headrace.client.core.operations import (
    ClientOperation,
    Effect,
    SendAll,
    Session,
)
from headrace.client.core.settings import ClientSettings
from headrace.core.errors import HeadraceError
from headrace.core.runtime import Clock, Randomness
from headrace.network.connection import Connect, ConnectionFactory
from headrace.network.connection_pool import ConnectionPool
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message

T = TypeVar("T")


class AsyncClusterRequests:
    """A pool of connections, the metadata that says where they lead, and operations over both."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock,
        randomness: Randomness,
        connect: Connect | None = None,
        connection_factory: ConnectionFactory | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        cluster = Cluster(settings.addresses)
        self._pool = ConnectionPool(
            settings.connection,
            cluster.address,
            connect=connect,
            connection_factory=connection_factory,
        )
        self.session = Session(
            settings=settings,
            cluster=cluster,
            randomness=randomness,
            now_ms=self.now_ms,
            connected=self._pool.ready_nodes,
        )
        # Of one request; requests to one node keep their order.
        self.submit = self._pool.submit
        self.new_channel = self._pool.new_channel
        self.close_channel = self._pool.close_channel
        self.close = self._pool.close

    def now_ms(self) -> float:
        """Milliseconds that only grow, by the loop's clock."""
        return asyncio.get_running_loop().time() * 1000

    async def run(self, operation: ClientOperation[T]) -> T:
        """Drive an operation of the core to its result."""
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
