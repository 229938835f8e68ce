"""What happens to groups without anybody asking: timeouts, expired offsets, deleted topics."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from headrace.core.shared_calls import call_each
from headrace.groups import offset_requests
from headrace.groups.offsets import GroupOffset
from headrace.groups.result import Result
from headrace.groups.shards import LoadedShard, ShardTable
from headrace.groups.timer_queue import TimerKey, TimerQueue
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image

logger = logging.getLogger(__name__)

# Forgotten in one turn of the event loop: a few milliseconds.
OFFSETS_PER_SLICE = 500
# Whatever the configuration says: looking for expired offsets must not keep a core busy.
CLEANUP_SECONDS_MIN = 0.01


class GroupTimers:
    """Keeps the time of all groups of this node."""

    def __init__(
        self,
        shards: ShardTable,
        new_result: Callable[[], Result],
        append: Callable[[LoadedShard, Result], None],
        cleanup_interval_ms: int,
        *,
        on_expired: Callable[[int], None],
        on_failed: Callable[[LoadedShard, Result], None],
    ) -> None:
        """`on_failed` hears of a step that failed half way."""
        self._shards = shards
        self._new_result = new_result
        self._append = append
        self._cleanup_seconds = max(CLEANUP_SECONDS_MIN, cleanup_interval_ms / 1000)
        self._timers = TimerQueue(lambda: new_result().now_ms, self._expired)
        self._cleanup: asyncio.Handle | None = None
        self._closed = False
        self._on_expired = on_expired
        self._on_failed = on_failed

    def start(self) -> None:
        self._schedule_cleanup()

    def close(self) -> None:
        self._closed = True
        self._timers.close()
        if self._cleanup is not None:
            self._cleanup.cancel()

    # Timeouts

    def shard_loaded(self, loaded: LoadedShard) -> None:
        """A shard is loaded: from now on time runs for its members."""
        result = self._new_result()
        offset_requests.delete_offsets_of_missing_topics(loaded.shard, result)
        self._append(loaded, result)
        loaded.shard.loaded(result)
        call_each(logger, "a look at a group", loaded.shard.groups, partial(self.schedule, loaded))

    def schedule(self, loaded: LoadedShard, group_id: str) -> None:
        """A group has changed: be there when it next has to be looked at."""
        self._timers.schedule((loaded.index, group_id), loaded.shard.next_deadline_ms(group_id))

    def _expired(self, key: TimerKey) -> int | None:
        index, group_id = key
        loaded = self._shards.get(index)
        if loaded is None:
            return None
        result = self._new_result()
        try:
            loaded.shard.expire(group_id, result)
        except Exception:
            if result.records or result.replies:
                self._on_failed(loaded, result)
            raise
        self._append(loaded, result)
        return loaded.shard.next_deadline_ms(group_id)

    # Offsets that go

    async def metadata_changed(self, old: Image, new: Image, delta: Delta) -> None:
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
        for loaded in tuple(self._shards):
            try:
                await self._delete_offsets(loaded, loaded.shard.offsets.in_topics(gone))
            except Exception:
                logger.exception("forgetting offsets of deleted topics: partition=%d", loaded.index)

    async def _delete_offsets(self, loaded: LoadedShard, offsets: Sequence[GroupOffset]) -> None:
        for start in range(0, len(offsets), OFFSETS_PER_SLICE):
            if self._closed or self._shards.get(loaded.index) is not loaded:
                return  # a shard that is loaded anew looks for lost topics by itself
            result = self._new_result()
            some = offsets[start : start + OFFSETS_PER_SLICE]
            offset_requests.delete_offsets_of_topics(loaded.shard, some, result)
            self._append(loaded, result)
            await asyncio.sleep(0)

    def _schedule_cleanup(self) -> None:
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._cleanup = loop.call_later(
                self._cleanup_seconds, self._cleanup_next, list(self._shards)
            )

    def _cleanup_next(self, remaining: list[LoadedShard]) -> None:
        """One shard in each turn of the loop, so that requests go on beside it."""
        if not remaining:
            self._cleanup = None
            self._schedule_cleanup()
            return
        loaded = remaining.pop()
        if self._shards.get(loaded.index) is loaded:
            groups = tuple(loaded.shard.groups)
            call_each(logger, "expiring offsets", groups, partial(self._expire_offsets, loaded))
        self._cleanup = asyncio.get_running_loop().call_soon(self._cleanup_next, remaining)

    def _expire_offsets(self, loaded: LoadedShard, group_id: str) -> None:
        result = self._new_result()
        expired = offset_requests.expire_offsets(loaded.shard, group_id, result)
        if result.records:
            self._append(loaded, result)
        self._on_expired(expired)
