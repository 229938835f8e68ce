"""What happens to groups without anybody asking: timeouts, expired offsets, deleted topics."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from headrace.controller.image import Delta, Image
from headrace.core.shared_calls import call_each
from headrace.groups import offset_requests
from headrace.groups.deadlines import Deadlines, Key
from headrace.groups.homes import Home, Homes
from headrace.groups.offsets import GroupOffset
from headrace.groups.step import Step

logger = logging.getLogger(__name__)

# Forgotten in one turn of the event loop: a few milliseconds.
OFFSETS_PER_TURN = 500
# Whatever the configuration says: looking for expired offsets must not keep a core busy.
CLEANUP_SECONDS_MIN = 0.01


class Upkeep:
    """Keeps the time of all groups of this node."""

    def __init__(
        self,
        homes: Homes,
        new_step: Callable[[], Step],
        append: Callable[[Home, Step], None],
        cleanup_interval_ms: int,
        *,
        on_expired: Callable[[int], None],
        on_failed: Callable[[Home, Step], None],
    ) -> None:
        """`on_failed` hears of a step that failed half way."""
        self._homes = homes
        self._new_step = new_step
        self._append = append
        self._cleanup_seconds = max(CLEANUP_SECONDS_MIN, cleanup_interval_ms / 1000)
        self._deadlines = Deadlines(lambda: new_step().now_ms, self._due)
        self._cleanup: asyncio.Handle | None = None
        self._closed = False
        self._on_expired = on_expired
        self._on_failed = on_failed

    def start(self) -> None:
        self._schedule_cleanup()

    def close(self) -> None:
        self._closed = True
        self._deadlines.close()
        if self._cleanup is not None:
            self._cleanup.cancel()

    # Timeouts

    def begin(self, home: Home) -> None:
        """A shard is loaded: from now on time runs for its members."""
        step = self._new_step()
        offset_requests.forget_lost_topics(home.shard, step)
        self._append(home, step)
        home.shard.loaded(step)
        call_each(logger, "a look at a group", home.shard.groups, partial(self.look_at, home))

    def look_at(self, home: Home, group_id: str) -> None:
        """A group has changed: be there when it next has to be looked at."""
        self._deadlines.at((home.index, group_id), home.shard.next_deadline_ms(group_id))

    def _due(self, key: Key) -> int | None:
        index, group_id = key
        home = self._homes.at(index)
        if home is None:
            return None
        step = self._new_step()
        try:
            home.shard.expire(group_id, step)
        except Exception:
            if step.writes or step.answers:
                self._on_failed(home, step)
            raise
        self._append(home, step)
        return home.shard.next_deadline_ms(group_id)

    # Offsets that go

    async def follow(self, old: Image, new: Image, delta: Delta) -> None:
        """Forget the offsets of topics that were deleted.

        There may be very many: the answer to the deletion waits for that, other clients do not.
        """
        gone = frozenset(
            name
            for name in delta.topics
            if name in old.topics
            and (name not in new.topics or new.topics[name].id != old.topics[name].id)
        )
        if not gone:
            return
        for home in tuple(self._homes):
            try:
                await self._forget(home, home.shard.offsets.in_topics(gone))
            except Exception:
                logger.exception("forgetting offsets of deleted topics: partition=%d", home.index)

    async def _forget(self, home: Home, offsets: Sequence[GroupOffset]) -> None:
        for start in range(0, len(offsets), OFFSETS_PER_TURN):
            if self._closed or self._homes.at(home.index) is not home:
                return  # a shard that is loaded anew looks for lost topics by itself
            step = self._new_step()
            some = offsets[start : start + OFFSETS_PER_TURN]
            offset_requests.forget(home.shard, some, step)
            self._append(home, step)
            await asyncio.sleep(0)

    def _schedule_cleanup(self) -> None:
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._cleanup = loop.call_later(self._cleanup_seconds, self._clean, list(self._homes))

    def _clean(self, homes: list[Home]) -> None:
        """One shard in each turn of the loop, so that requests go on beside it."""
        if not homes:
            self._cleanup = None
            self._schedule_cleanup()
            return
        home = homes.pop()
        if self._homes.at(home.index) is home:
            groups = tuple(home.shard.groups)
            call_each(logger, "expiring offsets", groups, partial(self._expire_offsets, home))
        self._cleanup = asyncio.get_running_loop().call_soon(self._clean, homes)

    def _expire_offsets(self, home: Home, group_id: str) -> None:
        step = self._new_step()
        expired = offset_requests.expire_offsets(home.shard, group_id, step)
        if step.writes:
            self._append(home, step)
        self._on_expired(expired)
