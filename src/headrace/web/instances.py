"""Consumer instances: consumers that live here between the requests of their HTTP clients.

An instance has a name in its group. It either subscribes to topics, as a member of the group
that shares partitions with the others, or is assigned partitions by its client. One that is not
used for a while is closed, so that its partitions go to somebody else.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final, Protocol

from headrace.client.core.fetched import Wants
from headrace.core.ids import TopicPartition
from headrace.core.runtime import Randomness
from headrace.gateway import GatewayMember
from headrace.protocol.records.decode import Record
from headrace.web.errors import (
    ILLEGAL_STATE,
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    TOO_MANY,
    HttpError,
)
from headrace.web.settings import WebSettings

logger = logging.getLogger(__name__)

Records = dict[TopicPartition, list[Record]]
_CHECKS_PER_TIMEOUT = 10
# How long the end of an instance waits for the request that it is serving.
_LAST_RESPONSE_SECONDS: Final = 1.0


class Abortable(Protocol):
    """A request that is being answered."""

    def abort(self) -> None:
        """Drop its connection, with what its client has not read yet."""
        ...


class UnacknowledgedPositions(dict[TopicPartition, int]):
    """Where the records begin that were taken for an answer and are not known to be received."""

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """These are no longer ours; when they come back they begin where others have left off."""
        for partition in partitions:
            self.pop(partition, None)


class Instance:
    """One consumer instance. Its requests are served one after the other."""

    def __init__(
        self,
        group: str,
        name: str,
        media: str,
        member: GatewayMember,
        unacknowledged: UnacknowledgedPositions,
        *,
        auto_commit: bool,
    ) -> None:
        """`given` is told by the member of partitions that go."""
        self.group = group
        self.name = name
        self.media = media
        """The content type of records."""
        self.member = member
        self.request_timeout_ms = 1000
        """How long an answer collects records."""
        self.min_bytes: float = inf
        """How many are enough for an answer to end before that."""
        self.topics: tuple[str, ...] = ()
        self.pattern: str | None = None
        self.is_assigned = False
        self.lock = asyncio.Lock()
        self.last_used = asyncio.get_running_loop().time()
        self._auto_commit = auto_commit
        self._delivered = False
        self._unacknowledged = unacknowledged
        self._polling: asyncio.Future[Records] | None = None
        self._responding: Abortable | None = None
        self._is_closed = False

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def check_reading(self) -> None:
        """Refuse what makes sense only for somebody who reads."""
        if not self.is_subscribed and not self.is_assigned:
            raise HttpError(
                ILLEGAL_STATE,
                "this instance is neither subscribed nor assigned",
                hint="POST topics to \u2026/subscription or partitions to \u2026/assignments first",
            )

    async def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        """Share these topics with the group's other members."""
        if self.is_assigned:
            raise HttpError(
                ILLEGAL_STATE,
                "this instance has partitions assigned by hand; it cannot subscribe as well",
                hint="create another instance",
            )
        await self.commit_delivered()
        await self.member.subscribe(topics, pattern=pattern)
        self.topics, self.pattern = tuple(topics), pattern

    async def unsubscribe(self) -> None:
        """Give everything up; another subscription or assignment may follow."""
        await self.commit_delivered()
        await self.member.unsubscribe()
        self.topics, self.pattern, self.is_assigned = (), None, False

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these, whatever the group's members do."""
        if self.is_subscribed:
            raise HttpError(
                ILLEGAL_STATE,
                "this instance is subscribed; it cannot be assigned partitions as well",
                hint="DELETE \u2026/subscription first, or create another instance",
            )
        await self.commit_delivered()
        await self.member.assign(partitions)
        self.is_assigned = True

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """The instance for one request; whoever comes after its end is told so."""
        async with self.lock:
            self._check_open()
            yield

    @asynccontextmanager
    async def responding(self, call: Abortable) -> AsyncIterator[None]:
        """A turn whose answer may take as long as its client likes, unless the instance ends."""
        async with self.exclusive():
            self._responding = call
            try:
                yield
            finally:
                self._responding = None

    async def poll(
        self, timeout_ms: float, max_records: int, wants: Wants | None = None
    ) -> Records:
        """The next records, as far as they are wanted; cut short when the instance is closed.

        Nobody has them until `mark_delivered`; `rewind_unacknowledged` gives them to the next who
        asks.
        """
        polling = asyncio.ensure_future(self._take(timeout_ms, max_records, wants))
        self._polling = polling
        try:
            return await polling
        except asyncio.CancelledError:
            polling.cancel()
            # So that nothing is taken from here on; it may be done already, in the same turn of
            # the loop in which the client went.
            await asyncio.wait([polling])
            self._check_open()
            raise
        finally:
            self._polling = None

    async def _take(
        self, timeout_ms: float, max_records: int, wants: Wants | None = None
    ) -> Records:
        found = await self.member.poll(timeout_ms, max_records, wants)
        # Before anything is awaited: positions have moved, and partitions may go from here on.
        for where, records in found.items():
            self._unacknowledged.setdefault(where, records[0].offset)
        return found

    def mark_delivered(self) -> None:
        """What was polled has been sent to the client."""
        if self._unacknowledged:
            self._unacknowledged.clear()
            self._delivered = True

    def rewind_unacknowledged(self) -> None:
        """Go back to where the answer began, in what has been ours all the time."""
        ours = set(self.member.assignment)
        for where, first in self._unacknowledged.items():
            if where in ours:
                self.member.seek(where, first)
        self._unacknowledged.clear()

    async def commit_delivered(self) -> None:
        """With auto.commit.enable: commit what was handed out so far."""
        due, self._delivered = self._delivered, False
        if self._auto_commit and due:
            await self.member.commit()

    async def close(self) -> None:
        """Leave the group; its partitions go to the others at once."""
        self._is_closed = True
        if self._polling is not None:
            self._polling.cancel()
        await self._lock_for_close()
        try:
            await self.commit_delivered()
        finally:
            try:
                await self.member.leave()
            finally:
                self.lock.release()

    async def _lock_for_close(self) -> None:
        """Take the lock; a client that does not read its answer is not waited for."""
        try:
            async with asyncio.timeout(_LAST_RESPONSE_SECONDS):
                await self.lock.acquire()
        except TimeoutError:
            if self._responding is not None:
                self._responding.abort()
            await self.lock.acquire()

    def _check_open(self) -> None:
        if self._is_closed:
            raise HttpError(
                INSTANCE_NOT_FOUND, f"{self.group} has no longer an instance {self.name}"
            )


class Instances:
    """All instances of an HTTP API, by group and name."""

    def __init__(self, settings: WebSettings) -> None:
        self._instances_max = settings.consumer_instances_max
        self._idle_seconds = settings.consumer_instance_timeout_ms / 1000
        self._by_name: dict[tuple[str, str], Instance] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def check_limit(self, group: str, name: str) -> None:
        """Refuse a name that is taken, and one instance more than are kept."""
        if (group, name) in self._by_name:
            raise HttpError(
                INSTANCE_EXISTS,
                f"{group} already has an instance {name}",
                hint="choose another name or none, or DELETE the old instance",
            )
        if len(self._by_name) >= self._instances_max:
            raise HttpError(
                TOO_MANY,
                f"{len(self._by_name)} consumer instances exist, more are not kept",
                hint="DELETE those that are not used, or raise http.max.consumer.instances",
            )

    def add(self, instance: Instance) -> None:
        self._by_name[instance.group, instance.name] = instance
        if self._sweeper is None:
            self._sweeper = asyncio.ensure_future(self._sweep())

    def get(self, group: str, name: str) -> Instance:
        instance = self._by_name.get((group, name))
        if instance is None:
            raise HttpError(
                INSTANCE_NOT_FOUND,
                f"{group} has no consumer instance {name}",
                hint="it may have expired; POST to /consumers/{group} creates one",
            )
        instance.last_used = asyncio.get_running_loop().time()
        return instance

    async def remove(self, group: str, name: str) -> None:
        """Forget an instance at once; its consumer leaves the group."""
        instance = self.get(group, name)
        del self._by_name[group, name]
        await instance.close()

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for group, name in list(self._by_name):
            try:
                await self.remove(group, name)
            except Exception as error:  # whatever it was: the others leave all the same
                logger.info("a consumer did not leave in order: group=%s error=%s", group, error)

    async def _sweep(self) -> None:
        """Close instances that nobody has used for long, for as long as there are any."""
        while self._by_name:
            await asyncio.sleep(self._idle_seconds / _CHECKS_PER_TIMEOUT)
            now = asyncio.get_running_loop().time()
            for (group, name), instance in list(self._by_name.items()):
                if instance.lock.locked() or now - instance.last_used < self._idle_seconds:
                    continue
                logger.info("a consumer instance expired: group=%s member=%s", group, name)
                try:
                    await self.remove(group, name)
                except Exception as error:  # whatever it was: the others expire all the same
                    logger.info("it did not leave in order: group=%s error=%s", group, error)
        self._sweeper = None


def new_name(randomness: Randomness) -> str:
    """A name for an instance whose client chose none."""
    return f"rest-consumer-{randomness.uuid()}"
