"""Members of groups on behalf of clients that cannot keep up a membership by themselves.

A client over HTTP or text asks now and then, or never again. So the member tends its membership in
between: heartbeats, and rebalances, which must not wait until somebody polls.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from headrace.client.aio.consumer import AsyncConsumer
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.fetched import Wants
from headrace.client.core.group_models import CommittedOffset
from headrace.client.core.models import OffsetSpec
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.records.decode import Record

# Groups over HTTP and text are assigned round-robin, by the broker.
ASSIGNOR: Final = "roundrobin"
_BACKGROUND_POLL_MS: Final = 60_000
# Per partition, fetched ahead of the polls.
_AHEAD_BYTES: Final = 256 * 1024
_RECORDS: Final = 500


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a client over HTTP or text may choose about its membership."""

    offset_reset: str = "earliest"
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    instance_id: str | None = None
    partition_bytes_max: int = _AHEAD_BYTES

    def consumer(self, group: str) -> ConsumerSettings:
        return ConsumerSettings(
            group,
            group_protocol="consumer",
            server_assignor=ASSIGNOR,
            group_instance_id=self.instance_id,
            offset_reset=self.offset_reset,  # type: ignore[arg-type]  # checked by ConsumerSettings
            auto_commit=self.auto_commit,
            auto_commit_interval_ms=self.auto_commit_interval_ms,
            isolation="read_committed",
            # Partitions that come with a rebalance wait for the fetch under way.
            fetch_wait_ms_max=500,
            partition_bytes_max=self.partition_bytes_max,
            prefetch_bytes=0,
        )


@dataclass(slots=True)
class _AssignmentListener:
    """Whether partitions came or went since somebody looked."""

    on_revoked: Callable[[list[TopicPartition]], None] | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def assigned(self, _: list[TopicPartition]) -> None:
        self.changed.set()

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.changed.set()
        if self.on_revoked is not None:
            self.on_revoked(partitions)


class GatewayMember:
    """One member of a group; made by `Gateway.join`, ended by `leave`."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        *,
        on_revoked: Callable[[list[TopicPartition]], None] | None = None,
    ) -> None:
        """`on_revoked` hears of partitions at the moment they stop being ours."""
        self._consumer = consumer
        self._assignment_listener = _AssignmentListener(on_revoked)
        self._background: asyncio.Task[None] | None = None
        self._failure: HeadraceError | None = None
        self._lock = asyncio.Lock()
        self._left = False

    async def __aenter__(self) -> "GatewayMember":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    @property
    def member_id(self) -> str:
        return self._consumer.member_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are ours now, in order."""
        return self._consumer.assignment

    async def subscribe(self, topics: Collection[str] = (), *, pattern: str | None = None) -> None:
        """Read these topics, or all that match, from now on."""
        listener = self._assignment_listener
        async with self._lock:
            await self._stop_background()
            await self._consumer.subscribe(
                topics,
                pattern=pattern,
                on_assigned=listener.assigned,
                on_revoked=listener.revoked,
                on_lost=listener.revoked,
            )
            self._start_background()

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without being counted by the group."""
        async with self._lock:
            await self._stop_background()
            self._consumer.assign(partitions)
            self._start_background()

    async def unsubscribe(self) -> None:
        """Give up everything; `subscribe` or `assign` may follow."""
        async with self._lock:
            await self._stop_background()
            await self._consumer.unsubscribe()

    async def wait_for_change(self, timeout_ms: float) -> bool:
        """Return when partitions came or went since the last call; False if none did in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._assignment_listener.changed.wait()
        changed = self._assignment_listener.changed.is_set()
        self._assignment_listener.changed.clear()
        return changed

    async def poll(
        self, timeout_ms: float, max_records: int = _RECORDS, wants: Wants | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Records by partition; waits up to `timeout_ms` for the first.

        `wants` may stop before a record, which is then the first of the next poll.
        """
        async with self._lock:
            await self._stop_background()
            try:
                return await self._consumer.poll(timeout_ms, max_records, wants)
            finally:
                self._start_background()

    async def commit(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None
    ) -> None:
        """Commit these offsets, or everything that was polled."""
        await self._consumer.commit(offsets)

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed for these (default: ours); others are left out."""
        return await self._consumer.committed(partitions)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` returns."""
        return await self._consumer.position(partition)

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another offset, end or time."""
        self._consumer.seek(partition, start)

    async def leave(self) -> None:
        """Leave the group at once; what was not committed goes to the others."""
        if self._left:
            return
        self._left = True
        async with self._lock:
            await self._stop_background()
            await self._consumer.close()

    # -- between polls

    def _start_background(self) -> None:
        if not self._left:
            self._background = asyncio.get_running_loop().create_task(self._poll_in_background())

    async def _poll_in_background(self) -> None:
        try:
            while True:
                # Hands nothing out, but follows what the group decides.
                await self._consumer.poll(_BACKGROUND_POLL_MS, max_records=0)
        except HeadraceError as error:
            self._failure = error

    async def _stop_background(self) -> None:
        """Stop tending; raise what it met, which the next poll would have met."""
        task, self._background = self._background, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        failure, self._failure = self._failure, None
        if failure is not None and not self._left:
            self._start_background()
            raise failure
