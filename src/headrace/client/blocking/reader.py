"""Read partitions by assignment in the caller's thread, with the next fetch already on its way."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

from headrace.client.blocking.cluster_requests import ClusterRequests
from headrace.client.blocking.connection import PendingResponse
from headrace.client.core.errors import CallTimedOut
from headrace.client.core.fetch_request import PlannedFetch
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


class Reader:
    """Reads the assigned partitions in offset order; made by `Client.reader`.

    Between two calls the answer to the next fetch gathers in the socket's buffer.
    """

    def __init__(
        self,
        requests: ClusterRequests,
        assignment: Mapping[TopicPartition, int | OffsetSpec],
        settings: ReaderSettings,
    ) -> None:
        self._requests = requests
        self._fetcher = Fetcher(requests.session, settings, requests.new_channel())
        self._fetcher.assign(assignment)
        self._in_flight: list[tuple[PlannedFetch, PendingResponse]] = []
        self._closed = False

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def poll(
        self, timeout_ms: float = 1000, max_records: int = _RECORDS_PER_POLL
    ) -> dict[TopicPartition, list[Record]]:
        """Records that have arrived, by partition; waits up to `timeout_ms` for the first."""
        return self._poll(timeout_ms, lambda: self._fetcher.take(max_records)) or {}

    def fetch(self, timeout_ms: float = 1000) -> list[FetchedChunk]:
        """Undecoded batches that have arrived; waits up to `timeout_ms` for the first.

        Batches of control and aborted records are among them, and the first batch of a chunk
        may begin before the position: the caller filters.
        """
        return self._poll(timeout_ms, self._fetcher.take_chunks) or []

    def __iter__(self) -> "Reader":
        """Every record from the position on, without end; waits for new ones.

        The reader is its own iterator: what a loop leaves behind is there for the next loop,
        `next` or `poll`.
        """
        return self

    def __next__(self) -> ReceivedRecord:
        """The next record; waits for one as long as it takes."""
        record = None if self._closed else self._fetcher.next_of_chunk()
        while record is None:
            record = self._poll(_ITERATION_MS, self._fetcher.take_one)
        return record

    def assign(self, assignment: Mapping[TopicPartition, int | OffsetSpec]) -> None:
        """Read other partitions from now on."""
        self._fetcher.assign(assignment)

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another offset, end or time."""
        self._fetcher.seek(partition, start)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned."""
        cursor = self._fetcher.cursor(partition)
        if cursor.position is None:
            self._requests.run(self._fetcher.look_up())
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

    def close(self) -> None:
        """Stop reading, and close the sockets that only this reader used."""
        self._closed = True
        self._requests.close_channel(self._fetcher.channel)

    def _poll(self, timeout_ms: float, take: Callable[[], R]) -> R | None:
        requests, fetcher = self._requests, self._fetcher
        deadline_ms = requests.now_ms() + timeout_ms
        while True:
            if self._closed:
                raise ClientClosed("reader")
            if not self._look_up(deadline_ms):
                return None
            self._send_due()
            taken = take()
            if taken:
                self._send_due()
                return taken
            fetcher.raise_error()
            now_ms = requests.now_ms()
            if now_ms >= deadline_ms:
                return None
            requests.wait(min(deadline_ms, fetcher.next_retry_ms(now_ms)) - now_ms)
            self._collect_responses()

    def _look_up(self, deadline_ms: float) -> bool:
        now_ms = self._requests.now_ms()
        if not self._fetcher.needs_lookup(now_ms):
            return True
        end_ms = max(deadline_ms, now_ms + LOOKUP_MS_MIN)
        try:
            self._requests.run(self._fetcher.look_up(), end_ms)
        except CallTimedOut:
            if self._requests.now_ms() >= end_ms:
                return False
            raise
        return True

    def _send_due(self) -> None:
        for call in self._fetcher.plan(self._requests.now_ms()):
            self._in_flight.append((call, self._requests.submit(call.send)))
        self._collect_responses()

    def _collect_responses(self) -> None:
        waiting: list[tuple[PlannedFetch, PendingResponse]] = []
        for call, pending in self._in_flight:
            if pending.outcome is None:
                waiting.append((call, pending))
            else:
                self._fetcher.on_response(call, pending.outcome, self._requests.now_ms())
        self._in_flight = waiting
