"""Read partitions by assignment, asynchronously, with the next fetch already on its way."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.aio.fetch_sender import EARLY_MS, FetchSender
from headrace.client.core.fetcher import LOOKUP_MS_MIN, Fetcher
from headrace.client.core.models import FetchedChunk, OffsetSpec, ReceivedRecord
from headrace.client.core.settings import ReaderSettings
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.errors import ClientClosed
from headrace.protocol.records.decode import Record

R = TypeVar("R")
_RECORDS_PER_POLL = 500
_ITERATION_MS = 1000


class AsyncReader:
    """Reads the assigned partitions in offset order; made by `AsyncClient.reader`."""

    def __init__(
        self,
        requests: AsyncClusterRequests,
        assignment: Mapping[TopicPartition, int | OffsetSpec],
        settings: ReaderSettings,
        on_close: Callable[["AsyncReader"], None],
    ) -> None:
        self._on_close = on_close
        self._requests = requests
        self._fetcher = Fetcher(requests.session, settings, requests.new_channel())
        self._fetcher.assign(assignment)
        self._fetch_sender = FetchSender(requests, self._fetcher)
        self._closed = False

    async def __aenter__(self) -> "AsyncReader":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def poll(
        self, timeout_ms: float = 1000, max_records: int = _RECORDS_PER_POLL
    ) -> dict[TopicPartition, list[Record]]:
        """Records that have arrived, by partition; waits up to `timeout_ms` for the first."""
        return await self._poll(timeout_ms, lambda: self._fetcher.take(max_records)) or {}

    async def fetch(self, timeout_ms: float = 1000) -> list[FetchedChunk]:
        """Undecoded batches that have arrived; waits up to `timeout_ms` for the first.

        Batches of control and aborted records are among them, and the first batch of a chunk
        may begin before the position: the caller filters.
        """
        return await self._poll(timeout_ms, self._fetcher.take_chunks) or []

    def __aiter__(self) -> "AsyncReader":
        """Every record from the position on, without end; waits for new ones.

        The reader is its own iterator: what a loop leaves behind is there for the next loop,
        `anext` or `poll`.
        """
        return self

    async def __anext__(self) -> ReceivedRecord:
        """The next record; waits for one as long as it takes."""
        record = None if self._closed else self._fetcher.next_of_chunk()
        while record is None:
            record = await self._poll(_ITERATION_MS, self._fetcher.take_one)
        return record

    def assign(self, assignment: Mapping[TopicPartition, int | OffsetSpec]) -> None:
        """Read other partitions from now on."""
        self._fetcher.assign(assignment)

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another offset, end or time."""
        self._fetcher.seek(partition, start)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned."""
        cursor = self._fetcher.cursor(partition)
        if cursor.position is None:
            await self._requests.run(self._fetcher.look_up())
        assert cursor.position is not None
        return cursor.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing from these until `resume`."""
        for partition in partitions:
            self._fetcher.cursor(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._fetcher.cursor(partition).is_paused = False

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end of what may be read, as of the last fetch; -1 before the first."""
        return self._fetcher.cursor(partition).high_watermark

    @property
    def last_error(self) -> HeadraceError | None:
        """Why a broker cannot be reached that has partitions to read; None when all is well."""
        return self._fetcher.last_error

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._fetcher.partitions

    async def close(self) -> None:
        """Stop fetching; answers that still come are dropped."""
        self._closed = True
        self._on_close(self)
        await self._fetch_sender.close()

    async def _poll(self, timeout_ms: float, take: Callable[[], R]) -> R | None:
        deadline_ms = self._requests.now_ms() + timeout_ms
        while True:
            if self._closed:
                raise ClientClosed("reader")
            if not await self._look_up(deadline_ms):
                return None
            self._fetch_sender.send_due()
            taken = take()
            if taken:
                self._fetch_sender.send_due()
                return taken
            self._fetcher.raise_error()
            now_ms = self._requests.now_ms()
            if now_ms + EARLY_MS >= deadline_ms:
                return None
            await self._fetch_sender.wait(
                min(deadline_ms, self._fetcher.next_retry_ms(now_ms)) - now_ms
            )

    async def _look_up(self, deadline_ms: float) -> bool:
        if not self._fetcher.needs_lookup(self._requests.now_ms()):
            return True
        left_ms = max(deadline_ms - self._requests.now_ms(), LOOKUP_MS_MIN)
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._requests.run(self._fetcher.look_up())
        except TimeoutError:
            return False
        return True
