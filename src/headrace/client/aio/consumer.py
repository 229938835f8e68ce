"""A member of a group for asyncio: heartbeats in the background, records when asked."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import TypeVar

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.aio.consumer_engine import ConsumerEngine, OffsetsToCommit
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.fetched import Wants
from headrace.client.core.group_models import CommittedOffset
from headrace.client.core.membership import PartitionsChange, RebalanceNotice, make_subscription
from headrace.client.core.models import OffsetSpec, ReceivedRecord
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record

R = TypeVar("R")
RebalanceListener = Callable[[list[TopicPartition]], Awaitable[None] | None]
_RECORDS_PER_POLL = 500
_ITERATION_MS = 1000


class AsyncConsumer:
    """Reads what its group gives it; made by `AsyncClient.consumer`.

    A task of its own keeps the membership alive while the program works, for as long as the
    event loop runs and polls are not further apart than `max_poll_interval_ms`.
    """

    def __init__(
        self,
        requests: AsyncClusterRequests,
        settings: ConsumerSettings,
        on_close: Callable[["AsyncConsumer"], None],
    ) -> None:
        self._on_close = on_close
        self._engine = ConsumerEngine(requests, settings)
        self._listeners: dict[PartitionsChange, RebalanceListener | None] = {}
        self._is_closed = False

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def subscribe(
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
        `poll` and may be coroutines: `on_assigned` before the first record of what is new,
        `on_revoked` while the partitions are still ours, `on_lost` when they already belong to
        others (without it `on_revoked` is called). Subscribing again replaces topics and
        listeners.
        """
        self._engine.subscribe(make_subscription(topics, pattern))
        self._listeners = {
            PartitionsChange.ASSIGNED: on_assigned,
            PartitionsChange.REVOKED: on_revoked,
            PartitionsChange.LOST: on_lost or on_revoked,
        }

    async def unsubscribe(self) -> None:
        """Leave the group; `subscribe` or `assign` may follow."""
        await self._leave("the consumer unsubscribed")

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, not as a member; commits are the group's all the same."""
        self._engine.assign(partitions)

    async def poll(
        self,
        timeout_ms: float = 1000,
        max_records: int = _RECORDS_PER_POLL,
        wants: Wants | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition; waits up to `timeout_ms` for the first. Listeners run in here.

        `wants` may stop before a record, which is then the first of the next poll.
        """
        fetcher = self._engine.fetcher
        return await self._poll(timeout_ms, lambda: fetcher.take(max_records, wants)) or {}

    def __aiter__(self) -> "AsyncConsumer":
        """Every record, without end; asking for the next one counts as a poll."""
        return self

    async def __anext__(self) -> ReceivedRecord:
        """The next record; waits for one as long as it takes."""
        engine = self._engine
        record = None
        if not (self._is_closed or engine.needs_attention):
            engine.membership.poll_timer.polls += 1
            record = engine.fetcher.next_of_chunk()
        while record is None:
            record = await self._poll(_ITERATION_MS, engine.fetcher.take_one)
        return record

    async def commit(
        self, offsets: OffsetsToCommit | None = None, *, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions of all partitions, or these offsets, and wait until it is done.

        An offset is that of the next record to read. `CommitFailed` means that the group has
        moved on: the records may have been given to another member.
        """
        await self._engine.commit(offsets, timeout_ms)

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed for these (default: the assigned); missing ones are not
        in the answer."""
        return await self._engine.committed(partitions)

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another offset, end or time."""
        self._engine.fetcher.seek(partition, start)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned."""
        return await self._engine.position(partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing from these until `resume`; the membership goes on."""
        for partition in partitions:
            self._engine.fetcher.cursor(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._engine.fetcher.cursor(partition).is_paused = False

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end of what may be read, as of the last fetch; -1 before the first."""
        return self._engine.fetcher.cursor(partition).high_watermark

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is read now, as of the last poll."""
        return sorted(self._engine.fetcher.partitions)

    @property
    def last_error(self) -> HeadraceError | None:
        """Why a broker cannot be reached that has partitions to read; None when all is well."""
        return self._engine.fetcher.last_error

    @property
    def is_member(self) -> bool:
        """Whether the group counts us in, as far as we know."""
        return self._engine.membership.is_member

    @property
    def member_id(self) -> str:
        """What the group calls us; empty until it does."""
        return self._engine.membership.identity.member_id

    async def close(self) -> None:
        """Commit if that is automatic, tell the listener, leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._leave("the consumer was closed")
        finally:
            await self._engine.close()
            self._on_close(self)

    async def _leave(self, reason: str) -> None:
        try:
            notice = await self._engine.prepare_leave()
            if notice is not None:
                await self._call_listener(notice)
        finally:  # also if the last commit failed or was broken off
            leaving = asyncio.ensure_future(self._engine.leave(reason))
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                # The group would wait for us for a whole session; this takes a moment.
                await leaving
                raise

    async def _poll(self, timeout_ms: float, take: Callable[[], R]) -> R | None:
        engine = self._engine
        deadline_ms = engine.start_poll(timeout_ms)
        engine.begin_poll()
        try:
            while True:
                outcome = await engine.poll_once(deadline_ms, take)
                if not isinstance(outcome, RebalanceNotice):
                    return outcome
                engine.end_poll()
                try:
                    await self._call_listener(outcome)
                finally:
                    engine.begin_poll()
                    engine.acknowledge(outcome)
        finally:
            engine.end_poll()

    async def _call_listener(self, notice: RebalanceNotice) -> None:
        listener = self._listeners.get(notice.change)
        if listener is not None:
            outcome = listener(list(notice.partitions))
            if inspect.isawaitable(outcome):
                await outcome
