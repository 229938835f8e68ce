"""Which shards live on this node: one for each partition of the topic that is led here.

    not led here ──elected──> being loaded ──> ready ──resigned──> not led here
                                   ^  |           |
                                   |  └──failed───┴── its log did not take a record
                                   └───later──┘

A shard belongs to one leader epoch. In the next one it is read anew, also where this node goes on
leading: what it had decided and not written is nobody's.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from headrace.coordinator.loading import load
from headrace.coordinator.partition_writer import PartitionWriter
from headrace.coordinator.shard import CoordinatorShard, RecordDecoder
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import LeaderEpoch
from headrace.protocol.compression import Codec
from headrace.replication.partition import Partition
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

# How long to wait before a shard that could not be read is tried again: as long at least, and so
# many times what the attempt took, since nobody can say whether the next one will succeed.
RETRY_SECONDS = 1.0
RETRY_PAUSES = 10

S = TypeVar("S", bound=CoordinatorShard[Any, Any])


class LoadedShard(Generic[S]):
    """A shard that is ready, and the writer of its log."""

    __slots__ = ("index", "leader_epoch", "number", "shard", "writer")

    def __init__(
        self, index: int, number: int, shard: S, leader_epoch: LeaderEpoch, writer: PartitionWriter
    ) -> None:
        """`number` is another one for every load: what belongs to an older one is known by it."""
        self.index = index
        self.number = number
        self.shard = shard
        self.leader_epoch = leader_epoch
        self.writer = writer


class ShardTable(Generic[S]):
    """Loads shards, one at a time; those that are asked for come first."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        codec: Codec,
        *,
        new_shard: Callable[[], S],
        new_decoder: Callable[[], RecordDecoder[Any]],
        on_loaded: Callable[[LoadedShard[S]], None],
        on_resigned: Callable[[LoadedShard[S]], None],
        on_failure: Callable[[LoadedShard[S], ErrorCode], None],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._codec = codec
        self._new_shard = new_shard
        self._new_decoder = new_decoder
        self._on_loaded = on_loaded
        self._on_resigned = on_resigned
        self._on_failure = on_failure
        # The partitions led here.
        self._epochs: dict[int, LeaderEpoch] = {}
        self._loaded: dict[int, LoadedShard[S]] = {}
        self._loads = 0
        self._queue: deque[int] = deque()
        self._being_loaded: tuple[int, LeaderEpoch] | None = None
        # Those whose last attempt failed.
        self._failed: set[int] = set()
        # Those that were thrown away and are not in the queue yet.
        self._unloaded: set[int] = set()
        self._loader: asyncio.Task[None] | None = None
        self._closed = False

    def __iter__(self) -> Iterator[LoadedShard[S]]:
        return iter(tuple(self._loaded.values()))

    @property
    def is_loading(self) -> bool:
        """Whether there is more that will soon be known; one that fails holds up nobody."""
        waiting = self._unloaded.union(self._queue)
        if self._being_loaded is not None:
            waiting.add(self._being_loaded[0])
        return not waiting - self._loaded.keys() <= self._failed

    def has(self, loaded: LoadedShard[S]) -> bool:
        """Whether it is still the shard of its partition."""
        return self._loaded.get(loaded.index) is loaded

    def get(self, index: int) -> LoadedShard[S] | None:
        return self._loaded.get(index)

    def find(self, index: int) -> LoadedShard[S]:
        """The shard of a partition; raises what its client has to be told otherwise."""
        loaded = self._loaded.get(index)
        return self._load_on_demand(index) if loaded is None else loaded

    def on_elected(self, index: int, leader_epoch: LeaderEpoch) -> None:
        """Its partition is led here from now on, or in a later epoch than before."""
        known = self._epochs.get(index)
        if known is not None:
            if known >= leader_epoch:
                return
            self.on_resigned(index, known)
        self._epochs[index] = leader_epoch
        partition = self._replicas.find(self._topic, index)
        if partition is not None and not _is_empty(partition):
            self._enqueue(index)

    def on_resigned(self, index: int, leader_epoch: LeaderEpoch) -> None:
        """Its partition is not led here any more: nobody gets an answer of this shard."""
        known = self._epochs.get(index)
        if known is None or leader_epoch < known:
            return  # old news
        del self._epochs[index]
        self._failed.discard(index)
        self._unloaded.discard(index)
        if index in self._queue:
            self._queue.remove(index)
        loaded = self._loaded.pop(index, None)
        if loaded is not None:
            self._on_resigned(loaded)

    def unload_and_reload(self, loaded: LoadedShard[S]) -> None:
        """Forget a shard that may be ahead of its log, and read it anew."""
        del self._loaded[loaded.index]
        self._unloaded.add(loaded.index)
        # After a while, or as soon as somebody asks: a failing disk is not asked all the time.
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._enqueue, loaded.index)

    async def close(self) -> None:
        self.kill()
        if self._loader is not None:
            await asyncio.gather(self._loader, return_exceptions=True)

    def kill(self) -> None:
        self._closed = True
        if self._loader is not None:
            self._loader.cancel()

    def _load_on_demand(self, index: int) -> LoadedShard[S]:
        """A shard that was not needed so far; one without records is ready at once."""
        leader_epoch = self._epochs.get(index)
        partition = self._replicas.find(self._topic, index)
        if leader_epoch is None or partition is None:
            # One that is offline has records that cannot be read now. Another coordinator is
            # nowhere: the client shall ask again, and not start from nothing.
            offline = self._replicas.is_offline(self._topic, index)
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if offline else ErrorCode.NOT_COORDINATOR
            )
        if index in self._failed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if _is_empty(partition):
            # Only where it is led: the log of a follower may be empty because it is behind.
            return self._activate(index, partition, leader_epoch, self._new_shard())
        self._enqueue(index, first=True)
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _enqueue(self, index: int, *, first: bool = False) -> None:
        self._unloaded.discard(index)
        if self._being_loaded == (index, self._epochs.get(index)):
            return
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
                index = self._queue.popleft()
                leader_epoch = self._epochs.get(index)
                partition = self._replicas.find(self._topic, index)
                if leader_epoch is None or partition is None or index in self._loaded:
                    continue  # resigned since it was put here, or loaded on demand
                self._being_loaded = index, leader_epoch
                try:
                    await self._load(index, partition, leader_epoch)
                finally:
                    self._being_loaded = None
        finally:
            self._loader = None

    async def _load(self, index: int, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def is_wanted() -> bool:
            return self._epochs.get(index) == leader_epoch and not partition.closed

        try:
            shard = self._new_shard()
            decoder = self._new_decoder()
            if await load(partition, shard, decoder, self._replicas.in_worker, is_wanted):
                self._activate(index, partition, leader_epoch, shard)
                self._failed.discard(index)
        except Exception as error:  # whatever it was: the other shards have their turn
            if not is_wanted():
                return  # its files may be gone by now
            pause = max(RETRY_SECONDS, RETRY_PAUSES * (loop.time() - began))
            expected = isinstance(error, HeadraceError | OSError)
            logger.error(
                "cannot load a coordinator: partition=%s epoch=%d error=%s retry_ms=%d",
                partition.id,
                leader_epoch,
                error,
                pause * 1000,
                exc_info=None if expected else error,
            )
            self._loaded.pop(index, None)
            self._failed.add(index)
            loop.call_later(pause, self._enqueue, index)

    def _activate(
        self, index: int, partition: Partition, leader_epoch: LeaderEpoch, shard: S
    ) -> LoadedShard[S]:
        writer = PartitionWriter(
            partition, leader_epoch, self._codec, lambda code: self._on_failure(loaded, code)
        )
        self._loads += 1
        loaded = LoadedShard(index, self._loads, shard, leader_epoch, writer)
        self._loaded[index] = loaded
        self._on_loaded(loaded)
        return loaded


def _is_empty(partition: Partition) -> bool:
    return partition.log.log_start_offset == partition.log.log_end_offset
