"""The engine below both consumers: fetches, positions, commits, and the membership's task.

It tells nobody anything: `poll_once` hands back a notice when the program must see one, and the
face shows it in its own way (awaiting a coroutine, or calling in the program's thread).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.aio.fetch_sender import EARLY_MS, FetchSender
from headrace.client.aio.membership import MembershipTask
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.consumer_state import ConsumerState
from headrace.client.core.errors import CallTimedOut, CommitFailed
from headrace.client.core.group_models import (
    NO_MEMBER,
    CommittedOffset,
    GroupIdentity,
    committed_offsets,
)
from headrace.client.core.lookups import MissingTopic
from headrace.client.core.membership import PartitionsChange, RebalanceNotice, Subscription
from headrace.client.core.memberships import make_membership
from headrace.client.core.offset_operations import fetch_offsets
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.network.errors import ClientClosed

R = TypeVar("R")
OffsetsToCommit = Mapping[TopicPartition, "int | CommittedOffset"]

logger = logging.getLogger(__name__)
# Committing before partitions go must not hold up the group for long.
_LAST_COMMIT_MS = 5_000
# What a round of finding positions may meet while the group or the cluster is in motion.
_REBALANCE_CODES = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class ConsumerEngine:
    """One consumer on one event loop."""

    def __init__(self, requests: AsyncClusterRequests, settings: ConsumerSettings) -> None:
        self._requests = requests
        self.settings = settings
        self.membership = make_membership(requests.session, settings)
        self.state = ConsumerState(requests.session, settings, requests.new_channel())
        self.fetcher = self.state.fetcher
        self._fetch_sender = FetchSender(requests, self.fetcher)
        self._membership_task = MembershipTask(
            requests, settings.group_id, self.membership, self._fetch_sender.arrived.set
        )
        self._is_subscribed = False
        self._is_assigned = False
        self._position_update: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    # -- what to read

    def subscribe(self, subscription: Subscription) -> None:
        """Be a member from now on, or change what is wanted."""
        self._check_open()
        if not self._is_subscribed and self.fetcher.partitions:
            raise ValueError("partitions were assigned by hand; unassign them with assign([])")
        self._is_subscribed = True
        self.membership.subscribe(subscription)
        self.membership.poll_timer.end(self._requests.now_ms())
        self._membership_task.start()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these, without being a member."""
        self._check_open()
        if self._is_subscribed:
            raise ValueError("this consumer has a subscription; unsubscribe() first")
        self._is_assigned = True
        wanted = [TopicPartition(*each) for each in partitions]
        self.state.remove([each for each in self.fetcher.partitions if each not in wanted])
        self.state.add(wanted)

    async def prepare_leave(self) -> RebalanceNotice | None:
        """Prepare to leave: commit if that is automatic; what the program must still be told."""
        if self.settings.auto_commit:
            await self._commit_last(None)
        return self.membership.leave_notice()

    async def leave(self, reason: str) -> None:
        """Give up everything, and tell the group."""
        await self._membership_task.stop()
        self._is_subscribed = self._is_assigned = False
        self.state.remove(self.fetcher.partitions)
        await self._membership_task.leave(reason)

    # -- polling

    def start_poll(self, timeout_ms: float) -> float:
        """Until when a poll may wait; one that can never return anything is a mistake."""
        self._check_open()
        if not (self._is_subscribed or self._is_assigned):
            raise ValueError("nothing to poll for: subscribe() to topics or assign() partitions")
        return self.now_ms() + timeout_ms

    def begin_poll(self) -> None:
        """The program waits for us: its time does not run."""
        self.membership.poll_timer.begin()
        if self._is_subscribed and self.membership.rejoin_if_stale():
            self._membership_task.wake_up()

    def end_poll(self) -> None:
        """The program is at work."""
        self.membership.poll_timer.end(self._requests.now_ms())

    @property
    def needs_attention(self) -> bool:
        """Whether the next record must wait for a poll; cheap, any thread may ask."""
        return self.membership.has_notice or self._failure is not None

    async def poll_once(
        self, deadline_ms: float, take: Callable[[], R]
    ) -> R | RebalanceNotice | None:
        """What `take` finds before the deadline, or a notice that must be told first."""
        while True:
            self._check_open()
            notice = self.membership.notice()
            if notice is not None:
                await self._prepare(notice)
                return notice
            self._raise_failure()
            self._start_background_work()
            taken = take()
            if taken:
                self._fetch_sender.send_due()
                return taken
            self.fetcher.raise_error()
            now_ms = self._requests.now_ms()
            if now_ms + EARLY_MS >= deadline_ms:
                return None
            retry_ms = self.fetcher.next_retry_ms(now_ms)
            update_ms = self.state.next_position_update_ms(now_ms)
            await self._fetch_sender.wait(min(deadline_ms, retry_ms, update_ms) - now_ms)

    async def _prepare(self, notice: RebalanceNotice) -> None:
        logger.info(
            "partitions change hands: change=%s group=%s partitions=%s",
            notice.change.name.lower(),
            self.settings.group_id,
            ",".join(map(str, notice.partitions)) or "none",
        )
        if notice.change is PartitionsChange.ASSIGNED:
            self.state.add(notice.partitions)
        elif notice.change is PartitionsChange.REVOKED and self.settings.auto_commit:
            await self._commit_last(notice.partitions)

    def acknowledge(self, notice: RebalanceNotice) -> None:
        """The program knows: act on it."""
        if notice.change is not PartitionsChange.ASSIGNED:
            self.state.remove(notice.partitions)
        self.membership.acknowledge(notice)
        self.membership.rejoin_if_stale()
        self._membership_task.wake_up()

    def _start_background_work(self) -> None:
        """Everything that goes on beside the records: positions, automatic commits, fetches."""
        now_ms = self._requests.now_ms()
        if self._position_update is None and self.state.needs_positions(now_ms):
            self._position_update = self._spawn(self._update_positions())
        if self._committing is None and self.state.is_commit_due(now_ms):
            offsets = self.state.uncommitted()
            if offsets:
                self._committing = self._spawn(self._commit_quietly(offsets, None))
        self._fetch_sender.send_due()

    async def _update_positions(self) -> None:
        try:
            await self._requests.run(self.state.update_positions(self._identity_or_no_member()))
        except (CallTimedOut, MissingTopic):
            pass
        except HeadraceError as error:
            if not error.retriable and error.code not in _REBALANCE_CODES:
                self._failure = error
        finally:
            self._position_update = None
            self._fetch_sender.arrived.set()

    # -- offsets

    def _identity_or_no_member(self) -> GroupIdentity:
        return self.membership.identity if self._is_subscribed else NO_MEMBER

    def _identity(self) -> GroupIdentity:
        """Who commits; one who has lost its membership must not commit as nobody in particular."""
        if not self._is_subscribed:
            return NO_MEMBER
        identity = self.membership.identity
        if identity is NO_MEMBER:
            group = self.settings.group_id
            raise CommitFailed(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"this consumer is not a member of group {group!r} at the moment",
            )
        return identity

    async def commit(
        self, offsets: OffsetsToCommit | None, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets, or the positions of everything assigned."""
        self._check_open()
        wanted = self.state.positions() if offsets is None else committed_offsets(offsets)
        while self._committing is not None:
            # An older position must not overtake this one.
            await asyncio.wait([self._committing])
        await self._run_commit(wanted, timeout_ms)

    async def _run_commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], timeout_ms: float | None
    ) -> None:
        operation = self.state.commit(
            offsets, self._identity, self._commit_refused, timeout_ms=timeout_ms
        )
        await self._requests.run(operation)

    def _commit_refused(self, member: GroupIdentity, error: HeadraceError) -> None:
        """A commit failed; that says nothing of a membership that has changed since it was sent."""
        if self._is_subscribed and member == self.membership.identity:
            self.membership.commit_refused(error)
            self._membership_task.wake_up()

    async def _commit_last(self, partitions: Collection[TopicPartition] | None) -> None:
        while self._committing is not None:
            await asyncio.wait([self._committing])
        offsets = self.state.uncommitted(partitions)
        if offsets:
            await self._commit_quietly(offsets, _LAST_COMMIT_MS)

    async def _commit_quietly(
        self, offsets: Mapping[TopicPartition, CommittedOffset], timeout_ms: float | None
    ) -> None:
        try:
            await self._run_commit(offsets, timeout_ms)
        except HeadraceError as error:
            logger.warning(
                "automatic commit failed: group=%s error=%s", self.settings.group_id, error
            )
        finally:
            self._committing = None

    async def committed(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed; partitions without an offset are left out."""
        self._check_open()
        wanted = self.fetcher.partitions if partitions is None else list(partitions)
        group = self.settings.group_id
        return await self._requests.run(fetch_offsets(self._requests.session, group, wanted))

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; found out first if need be."""
        cursor = self.fetcher.cursor(partition)
        deadline_ms = self._requests.now_ms() + self._requests.settings.call_timeout_ms
        while cursor.position is None:
            self._check_open()
            self._raise_failure()
            self.fetcher.raise_error()
            now_ms = self._requests.now_ms()
            if now_ms >= deadline_ms:
                raise CallTimedOut(f"no position for {partition} was found in time")
            self._start_background_work()
            update_ms = self.state.next_position_update_ms(now_ms)
            await self._fetch_sender.wait(min(deadline_ms, update_ms) - now_ms)
        return cursor.position

    # -- the end, and what went wrong

    async def close(self) -> None:
        """Stop everything; the group has been told before, or will find out."""
        self._is_closed = True
        self._fetch_sender.arrived.set()
        await self._membership_task.stop()
        for task in (self._position_update, self._committing):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self._fetch_sender.close()

    def now_ms(self) -> float:
        return self._requests.now_ms()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._failure = fault
            self._fetch_sender.arrived.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("consumer")

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        for each in (failure, self._membership_task.fault, self.membership.error):
            if each is not None:
                raise each
