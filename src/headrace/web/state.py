"""What all requests of the HTTP API share: the gateway, the limits, the consumer instances."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.core.runtime import Executor
from headrace.web.group_metrics import GroupMetrics
from headrace.web.http_metrics import HttpMetrics, RequestCounts
from headrace.web.instances import Instances
from headrace.web.limits import LoopSlices, MemoryBudget, StreamLimit
from headrace.web.metrics import MetricsSource
from headrace.web.settings import WebSettings

if TYPE_CHECKING:
    from headrace.gateway import Gateway


class HttpState:
    """The state behind the routes of one HTTP server."""

    def __init__(
        self,
        gateway: "Gateway",
        settings: WebSettings,
        *,
        executor: Executor,
        sources: Sequence[MetricsSource] = (),
    ) -> None:
        self.gateway = gateway
        self.clock = gateway.client.clock
        self.randomness = gateway.client.requests.session.randomness
        self.settings = settings
        self.request_counts = RequestCounts()
        groups = GroupMetrics(
            lambda: gateway.admin, lambda: gateway.client.requests.now_ms() / 1000, executor
        )
        self.is_stopping = False
        self.disconnect_waits: set[asyncio.Future[None]] = set()
        """Ends of clients that something waits for; all of them end when the listener closes."""
        self.loop_slices = LoopSlices()
        self.body_memory = MemoryBudget(settings.held_bytes_max)
        self.stream_limit = StreamLimit(settings.streams_max)
        self.instances = Instances(settings)
        own = HttpMetrics(self.request_counts, self.stream_limit, self.instances)
        self.sources = (*sources, own, groups)
        self.openapi_document: Callable[[], bytes] = bytes
        """The description of all routes; set by the application, which knows them."""

    def stop_waiting(self) -> None:
        """End streams and long polls."""
        self.is_stopping = True
        for watch in list(self.disconnect_waits):
            watch.cancel()

    async def close(self) -> None:
        """Let consumers leave their groups."""
        await self.instances.close()
