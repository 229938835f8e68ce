"""A member of a group for ordinary threads; a thread of its own keeps the membership alive."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from headrace.client.aio.client import AsyncClient
from headrace.client.aio.consumer_engine import ConsumerEngine, OffsetsToCommit
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.group_models import CommittedOffset
from headrace.client.core.membership import PartitionsChange, RebalanceNotice, make_subscription
from headrace.client.core.models import OffsetSpec, ReceivedRecord
from headrace.client.core.settings import ClientSettings
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.errors import ClientClosed
from headrace.protocol.records.decode import Record

RebalanceListener = Callable[[list[TopicPartition]], None]
T = TypeVar("T")
_RECORDS_PER_POLL = 500
_ITERATION_MS = 1000


class Consumer:
    """Reads what its group gives it; made by `Client.consumer`.

    Use it from one thread at a time: polls, listeners and all other calls run in the caller's.
    The consumer's own thread heartbeats and fetches ahead while the program works, for as long
    as polls are not further apart than `max_poll_interval_ms`.
    """

    def __init__(self, client_settings: ClientSettings, settings: ConsumerSettings) -> None:
        self._client_settings = client_settings
        self._settings = settings
        self._listeners: dict[PartitionsChange, RebalanceListener | None] = {}
        # Records that iteration has fetched and not handed out yet, in the order they will be.
        self._buffered: deque[ReceivedRecord] = deque()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-consumer", daemon=True
        )
        self._thread.start()
        self._client, self._engine = self._call(self._start())

    async def _start(self) -> tuple[AsyncClient, ConsumerEngine]:
        client = AsyncClient(self._client_settings)
        return client, ConsumerEngine(client.requests, self._settings)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, or those whose whole name matches `pattern`.

        Returns at once; partitions come with the polls that follow. The listeners run inside
        `poll`, in the thread that polls: `on_assigned` before the first record of what is new,
        `on_revoked` while the partitions are still ours, `on_lost` when they already belong to
        others (without it `on_revoked` is called). Subscribing again replaces topics and
        listeners.
        """
        wanted = make_subscription(topics, pattern)
        self._run_on_loop(lambda: self._engine.subscribe(wanted))
        self._listeners = {
            PartitionsChange.ASSIGNED: on_assigned,
            PartitionsChange.REVOKED: on_revoked,
            PartitionsChange.LOST: on_lost or on_revoked,
        }

    def unsubscribe(self) -> None:
        """Leave the group; `subscribe` or `assign` may follow."""
        self._return_buffered()
        self._leave("the consumer unsubscribed")

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, not as a member; commits are the group's all the same."""
        self._return_buffered()
        self._run_on_loop(lambda: self._engine.assign(partitions))

    def poll(
        self, timeout_ms: float = 1000, max_records: int = _RECORDS_PER_POLL
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition; waits up to `timeout_ms` for the first. Listeners run in here."""
        self._return_buffered()
        return self._poll(timeout_ms, max_records)

    def __iter__(self) -> "Consumer":
        """Every record, without end; asking for the next one counts as a poll."""
        return self

    def __next__(self) -> ReceivedRecord:
        """The next record; waits for one as long as it takes."""
        self._engine.membership.poll_timer.polls += 1
        if self._engine.needs_attention:
            self._return_buffered()
        while not self._buffered:
            for (topic, number), records in self._poll(_ITERATION_MS, _RECORDS_PER_POLL).items():
                self._buffered += [ReceivedRecord(topic, number, *record) for record in records]
        return self._buffered.popleft()

    def commit(
        self, offsets: OffsetsToCommit | None = None, *, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions of all partitions, or these offsets, and wait until it is done.

        An offset is that of the next record to read. `CommitFailed` means that the group has
        moved on: the records may have been given to another member.
        """
        if offsets is None and self._buffered:
            offsets = {**self._run_on_loop(self._engine.state.positions), **self._unread()}
        self._call(self._engine.commit(offsets, timeout_ms))

    def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed for these (default: the assigned); missing ones are not
        in the answer."""
        return self._call(self._engine.committed(partitions))

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another offset, end or time."""
        self._return_buffered()
        self._run_on_loop(lambda: self._engine.fetcher.seek(partition, start))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned."""
        unread = self._unread().get(partition)
        return self._call(self._engine.position(partition)) if unread is None else unread.offset

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing from these until `resume`; the membership goes on."""
        self._return_buffered()
        self._run_on_loop(lambda: self._set_paused(partitions, is_paused=True))

    def resume(self, *partitions: TopicPartition) -> None:
        self._run_on_loop(lambda: self._set_paused(partitions, is_paused=False))

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end of what may be read, as of the last fetch; -1 before the first."""
        return self._run_on_loop(lambda: self._engine.fetcher.cursor(partition).high_watermark)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is read now, as of the last poll."""
        return self._run_on_loop(lambda: sorted(self._engine.fetcher.partitions))

    @property
    def last_error(self) -> HeadraceError | None:
        """Why a broker cannot be reached that has partitions to read; None when all is well."""
        return self._run_on_loop(lambda: self._engine.fetcher.last_error)

    @property
    def is_member(self) -> bool:
        """Whether the group counts us in, as far as we know."""
        return self._run_on_loop(lambda: self._engine.membership.is_member)

    @property
    def member_id(self) -> str:
        """What the group calls us; empty until it does."""
        return self._run_on_loop(lambda: self._engine.membership.identity.member_id)

    def close(self) -> None:
        """Commit if that is automatic, tell the listener, leave the group, end the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._return_buffered()
            self._leave("the consumer was closed")
        finally:
            self._call(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # -- telling the program, in its own thread

    def _poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, list[Record]]:
        engine = self._engine
        deadline_ms = self._run_on_loop(lambda: engine.start_poll(timeout_ms))
        while True:
            outcome = self._call(self._poll_once(deadline_ms, max_records))
            if not isinstance(outcome, RebalanceNotice):
                return outcome
            try:
                self._call_listener(outcome)
            finally:
                self._run_on_loop(partial(engine.acknowledge, outcome))

    async def _poll_once(
        self, deadline_ms: float, max_records: int
    ) -> dict[TopicPartition, list[Record]] | RebalanceNotice:
        engine = self._engine
        engine.begin_poll()
        try:
            return (
                await engine.poll_once(deadline_ms, lambda: engine.fetcher.take(max_records)) or {}
            )
        finally:
            engine.end_poll()

    def _leave(self, reason: str) -> None:
        try:
            notice = self._call(self._engine.prepare_leave())
            if notice is not None:
                self._call_listener(notice)
        finally:  # also if the last commit failed or was broken off
            self._call_uninterrupted(self._engine.leave(reason))

    def _call_listener(self, notice: RebalanceNotice) -> None:
        listener = self._listeners.get(notice.change)
        if listener is not None:
            listener(list(notice.partitions))

    # -- records that iteration has taken ahead

    def _unread(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Where each partition goes on that has records waiting here."""
        first: dict[TopicPartition, CommittedOffset] = {}
        for record in self._buffered:
            where = TopicPartition(record.topic, record.partition)
            first.setdefault(where, CommittedOffset(record.offset))
        return first

    def _return_buffered(self) -> None:
        """Nothing is ahead any more: positions are where the program has read to."""
        if not self._buffered:
            return
        unread = self._unread()
        self._buffered.clear()
        self._run_on_loop(lambda: self._seek_back(unread))

    def _seek_back(self, positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        fetcher = self._engine.fetcher
        for partition in set(positions) & set(fetcher.partitions):
            fetcher.seek(partition, positions[partition].offset)

    def _set_paused(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        for partition in partitions:
            self._engine.fetcher.cursor(partition).is_paused = is_paused

    # -- the thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise ClientClosed("consumer")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupted program must not leave the call running behind its back.
            future.cancel()
            raise

    def _call_uninterrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """`_call`, for what others wait for: only a second interruption ends it half way."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                try:
                    future.exception()
                except BaseException:
                    future.cancel()
                    raise
            raise

    def _run_on_loop(self, work: Callable[[], T]) -> T:
        """Run something quick on the loop, which owns all state."""

        async def run() -> T:
            return work()

        return self._call(run())

    async def _stop(self) -> None:
        await self._engine.close()
        await self._client.close()
