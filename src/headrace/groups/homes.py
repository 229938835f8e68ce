"""Where each shard lives on this node: being loaded, ready, or not here."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from headrace.controller.names import OFFSETS_TOPIC
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.groups.journal import Journal
from headrace.groups.loading import load
from headrace.groups.names import NAME_LENGTH_MAX
from headrace.groups.offsets_topic import OffsetsTopic, partition_for
from headrace.groups.shard import Shard
from headrace.protocol.compression import Codec
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas

logger = logging.getLogger(__name__)

# How long to wait before a shard that could not be read is tried again: as long at least, and so
# many times what the attempt took, since nobody can say whether the next one will succeed.
RETRY_SECONDS = 1.0
RETRY_PAUSES = 10


class Home:
    """A shard that is ready, and the journal that writes for it."""

    __slots__ = ("index", "journal", "partition", "shard")

    def __init__(self, index: int, shard: Shard, partition: Partition, journal: Journal) -> None:
        self.index = index
        self.shard = shard
        self.partition = partition
        self.journal = journal


class Homes:
    """Loads shards, one at a time; those that are asked for come first."""

    def __init__(
        self,
        topic: OffsetsTopic,
        replicas: Replicas,
        codec: Codec,
        *,
        on_ready: Callable[[Home], None],
        on_failure: Callable[[Home, ErrorCode], None],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._codec = codec
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._ready: dict[int, Home] = {}
        self._queue: deque[int] = deque()
        # Those whose last attempt failed.
        self._failing: set[int] = set()
        self._loader: asyncio.Task[None] | None = None
        self._closed = False

    def __iter__(self) -> Iterator[Home]:
        return iter(tuple(self._ready.values()))

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that will soon be known; one that fails holds up nobody."""
        return any(index not in self._failing for index in self._queue)

    def at(self, index: int) -> Home | None:
        return self._ready.get(index)

    def find(self, group_id: str) -> Home:
        """The home of a group; raises what its client has to be told otherwise."""
        if len(group_id) > NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        count = self._topic.partition_count()
        if count is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        index = partition_for(group_id, count)
        home = self._ready.get(index)
        if home is None or home.partition.retired:
            home = self._open(index)
        return home

    def load_all(self) -> None:
        """Begin with all shards that have anything to load."""
        for index in range(self._topic.partition_count() or 0):
            partition = self._replicas.find(OFFSETS_TOPIC, index)
            if partition is not None and index not in self._ready:
                self._enqueue(index)

    def drop(self, home: Home) -> None:
        """Forget a shard whose log did not take its records, and read it anew."""
        if self._ready.get(home.index) is home:
            del self._ready[home.index]
            # After a while, or as soon as somebody asks: a failing disk is not asked all the time.
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._enqueue, home.index)

    async def close(self) -> None:
        self._closed = True
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)

    def kill(self) -> None:
        self._closed = True
        if self._loader is not None:
            self._loader.cancel()

    def _open(self, index: int) -> Home:
        """A shard that was not needed so far; one without records is ready at once."""
        self._ready.pop(index, None)
        partition = self._replicas.find(OFFSETS_TOPIC, index)
        if partition is None:
            # One that is offline has groups and offsets that cannot be read now. Another
            # coordinator is nowhere: the client shall ask again, and not start from nothing.
            offline = self._replicas.is_offline(OFFSETS_TOPIC, index)
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if offline else ErrorCode.NOT_COORDINATOR
            )
        if index in self._failing:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            return self._settle(index, partition, Shard())
        self._enqueue(index, first=True)
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _enqueue(self, index: int, *, first: bool = False) -> None:
        if first and index in self._queue:
            self._queue.remove(index)
        if index not in self._queue:
            if first:
                self._queue.appendleft(index)
            else:
                self._queue.append(index)
        if self._loader is None and not self._closed:
            self._loader = asyncio.get_running_loop().create_task(self._load_queue())

    async def _load_queue(self) -> None:
        try:
            while self._queue:
                index = self._queue[0]
                partition = self._replicas.find(OFFSETS_TOPIC, index)
                if partition is None:
                    # Deleted: whatever will be there under this number has not failed yet.
                    self._failing.discard(index)
                elif index not in self._ready:
                    await self._load(index, partition)
                if index in self._queue:
                    self._queue.remove(index)
        finally:
            self._loader = None

    async def _load(self, index: int, partition: Partition) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            shard = await load(partition, self._replicas.in_worker)
            if self._replicas.find(OFFSETS_TOPIC, index) is partition:
                self._settle(index, partition, shard)
            self._failing.discard(index)
        except Exception as error:  # whatever it was: the other shards have their turn
            pause = max(RETRY_SECONDS, RETRY_PAUSES * (loop.time() - began))
            expected = isinstance(error, HeadraceError | OSError)
            logger.error(
                "cannot load groups: partition=%s error=%s retry_ms=%d",
                index,
                error,
                pause * 1000,
                exc_info=None if expected else error,
            )
            self._ready.pop(index, None)
            self._failing.add(index)
            loop.call_later(pause, self._enqueue, index)

    def _settle(self, index: int, partition: Partition, shard: Shard) -> Home:
        journal = Journal(partition, self._codec, lambda code: self._on_failure(home, code))
        home = self._ready[index] = Home(index, shard, partition, journal)
        self._on_ready(home)
        if shard.groups:
            logger.info(
                "groups loaded: partition=%d groups=%d offsets=%d",
                index,
                len(shard.groups),
                len(shard.offsets),
            )
        return home
