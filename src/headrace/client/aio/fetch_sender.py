"""Sends the fetches that a reader plans, and takes their answers in."""

import asyncio
from functools import partial

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.core.fetch_request import PlannedFetch
from headrace.client.core.fetcher import Fetcher
from headrace.core.errors import HeadraceError
from headrace.network.connection import ResponseFuture

# A timer may fire this much before its time, as rounding and the clock's grain will have it.
EARLY_MS = 0.01


class FetchSender:
    """The fetches in flight of one `Fetcher`; `arrived` is set whenever one was answered."""

    def __init__(self, requests: AsyncClusterRequests, fetcher: Fetcher) -> None:
        self._requests = requests
        self._fetcher = fetcher
        self._in_flight: set[ResponseFuture] = set()
        self.arrived = asyncio.Event()

    def send_due(self) -> None:
        """Send what is due; never waits."""
        for call in self._fetcher.plan(self._requests.now_ms() + EARLY_MS):
            response = self._requests.submit(call.send)
            self._in_flight.add(response)
            response.add_done_callback(partial(self._on_response, call))

    def _on_response(self, call: PlannedFetch, response: ResponseFuture) -> None:
        self._in_flight.discard(response)
        if response.cancelled():
            return
        failure = response.exception()
        if failure is not None and not isinstance(failure, HeadraceError):
            raise failure
        outcome = failure or response.result()
        assert outcome is not None
        self._fetcher.on_response(call, outcome, self._requests.now_ms())
        self.arrived.set()

    async def wait(self, ms: float) -> None:
        """Until something has arrived, or the time is up."""
        self.arrived.clear()
        try:
            async with asyncio.timeout(ms / 1000):
                await self.arrived.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stop fetching; answers that still come are dropped."""
        for response in list(self._in_flight):
            response.cancel()
        await self._requests.close_channel(self._fetcher.channel)
