"""Where each shard lives on this node: being loaded, ready, or not here."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.groups.loading import load
from headrace.groups.names import NAME_LENGTH_MAX
from headrace.groups.offsets_topic import OffsetsTopic, partition_for
from headrace.groups.partition_writer import PartitionWriter
from headrace.groups.shard import GroupShard
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.compression import Codec
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

# How long to wait before a shard that could not be read is tried again: as long at least, and so
# many times what the attempt took, since nobody can say whether the next one will succeed.
RETRY_SECONDS = 1.0
RETRY_PAUSES = 10


class LoadedShard:
    """A shard that is ready, and the journal that writes for it."""

    __slots__ = ("index", "partition", "shard", "writer")

    def __init__(
        self, index: int, shard: GroupShard, partition: Partition, writer: PartitionWriter
    ) -> None:
        self.index = index
        self.shard = shard
        self.partition = partition
        self.writer = writer


class ShardTable:
    """Loads shards, one at a time; those that are asked for come first."""

    def __init__(
        self,
        topic: OffsetsTopic,
        replicas: ReplicaManager,
        codec: Codec,
        *,
        on_loaded: Callable[[LoadedShard], None],
        on_failure: Callable[[LoadedShard, ErrorCode], None],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._codec = codec
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self._loaded: dict[int, LoadedShard] = {}
        self._queue: deque[int] = deque()
        # Those whose last attempt failed.
        self._failed: set[int] = set()
        self._loader: asyncio.Task[None] | None = None
        self._closed = False

    def __iter__(self) -> Iterator[LoadedShard]:
        return iter(tuple(self._loaded.values()))

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that will soon be known; one that fails holds up nobody."""
        return any(index not in self._failed for index in self._queue)

    def get(self, index: int) -> LoadedShard | None:
        return self._loaded.get(index)

    def find(self, group_id: str) -> LoadedShard:
        """The home of a group; raises what its client has to be told otherwise."""
        if len(group_id) > NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        count = self._topic.partition_count()
        if count is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        index = partition_for(group_id, count)
        loaded = self._loaded.get(index)
        if loaded is None or loaded.partition.closed:
            loaded = self._load_on_demand(index)
        return loaded

    def load_all(self) -> None:
        """Begin with all shards that have anything to load."""
        for index in range(self._topic.partition_count() or 0):
            partition = self._replicas.find(OFFSETS_TOPIC, index)
            if partition is not None and index not in self._loaded:
                self._enqueue(index)

    def unload_and_reload(self, loaded: LoadedShard) -> None:
        """Forget a shard whose log did not take its records, and read it anew."""
        if self._loaded.get(loaded.index) is loaded:
            del self._loaded[loaded.index]
            # After a while, or as soon as somebody asks: a failing disk is not asked all the time.
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._enqueue, loaded.index)

    async def close(self) -> None:
        self._closed = True
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)

    def kill(self) -> None:
        self._closed = True
        if self._loader is not None:
            self._loader.cancel()

    def _load_on_demand(self, index: int) -> LoadedShard:
        """A shard that was not needed so far; one without records is ready at once."""
        self._loaded.pop(index, None)
        partition = self._replicas.find(OFFSETS_TOPIC, index)
        if partition is None:
            # One that is offline has groups and offsets that cannot be read now. Another
            # coordinator is nowhere: the client shall ask again, and not start from nothing.
            offline = self._replicas.is_offline(OFFSETS_TOPIC, index)
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if offline else ErrorCode.NOT_COORDINATOR
            )
        if index in self._failed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            return self._activate(index, partition, GroupShard())
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
                    self._failed.discard(index)
                elif index not in self._loaded:
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
                self._activate(index, partition, shard)
            self._failed.discard(index)
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
            self._loaded.pop(index, None)
            self._failed.add(index)
            loop.call_later(pause, self._enqueue, index)

    def _activate(self, index: int, partition: Partition, shard: GroupShard) -> LoadedShard:
        writer = PartitionWriter(
            partition, self._codec, lambda code: self._on_failure(loaded, code)
        )
        loaded = self._loaded[index] = LoadedShard(index, shard, partition, writer)
        self._on_loaded(loaded)
        if shard.groups:
            logger.info(
                "groups loaded: partition=%d groups=%d offsets=%d",
                index,
                len(shard.groups),
                len(shard.offsets),
            )
        return loaded
