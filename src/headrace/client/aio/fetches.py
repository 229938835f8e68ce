"""Sends the fetches that a reader plans, and takes their answers in."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headrace.client.core.fetch_request import FetchCall
from headrace.client.core.fetching import Fetching
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient
    from headrace.client.aio.link import Answer

# A timer may fire this much before its time, as rounding and the clock's grain will have it.
EARLY_MS = 0.01


class Fetches:
    """The fetches in flight of one `Fetching`; `arrived` is set whenever one has landed."""

    def __init__(self, client: "AsyncClient", fetching: Fetching) -> None:
        self._client = client
        self._fetching = fetching
        self._in_flight: set[Answer] = set()
        self.arrived = asyncio.Event()

    def launch(self) -> None:
        """Send what is due; never waits."""
        for call in self._fetching.plan(self._client.now_ms() + EARLY_MS):
            answer = self._client.submit(call.ask)
            self._in_flight.add(answer)
            answer.add_done_callback(partial(self._landed, call))

    def _landed(self, call: FetchCall, answer: "Answer") -> None:
        self._in_flight.discard(answer)
        if answer.cancelled():
            return
        failure = answer.exception()
        if failure is not None and not isinstance(failure, HeadraceError):
            raise failure
        outcome = failure or answer.result()
        assert outcome is not None
        self._fetching.answered(call, outcome, self._client.now_ms())
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
        for answer in list(self._in_flight):
            answer.cancel()
        await self._client.close_channel(self._fetching.channel)
