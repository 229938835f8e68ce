"""Runs the shards of one coordinator: loads, writes, answers when durable, keeps their time.

    request --operation--> shard: records, replies, timers
                             |  one turn of the event loop, one batch
                             v
                  partition of the topic --committed--> replies leave

Operations run one at a time on the event loop and see all earlier ones, committed or not. What
fails costs one shard: it is thrown away, whoever waits is told to look for the coordinator again,
and it is read anew from its log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from headrace.coordinator.partition_writer import fail_replies
from headrace.coordinator.result import Reply, ReplyCallback, Result, TimerKey
from headrace.coordinator.shard import CoordinatorShard, RecordDecoder
from headrace.coordinator.shards import LoadedShard, ShardTable
from headrace.coordinator.timers import Timers
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import LeaderEpoch, TopicPartition
from headrace.core.runtime import Clock
from headrace.core.shared_calls import call_each
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any, Any])
C = TypeVar("C", bound=Result[Any])
T = TypeVar("T")
K = TypeVar("K")


class CoordinatorRuntime(Generic[S, C]):
    """All shards of a coordinator's topic whose partitions are led here.

    Calls raise `ApiError` where a request is refused at once, as when its shard is elsewhere or
    still being loaded; otherwise replies are called exactly once.
    """

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        clock: Clock,
        codec: Codec,
        *,
        partition_of: Callable[[str], int | None],
        new_shard: Callable[[], S],
        new_decoder: Callable[[], RecordDecoder[Any]],
        new_result: Callable[[int, int], C],
    ) -> None:
        """`partition_of` a key is None while the topic does not exist; it may refuse the key.

        `new_result` is given the monotonic time and that of the wall clock.
        """
        self._topic = topic
        self._clock = clock
        self._partition_of = partition_of
        self._new_result = new_result
        self.shards: ShardTable[S] = ShardTable(
            topic,
            replicas,
            codec,
            new_shard=new_shard,
            new_decoder=new_decoder,
            on_loaded=self._loaded,
            on_resigned=self._resigned,
            on_failure=self._write_failed,
        )
        self._timers: Timers[tuple[int, int, TimerKey]] = Timers(
            lambda: int(clock.monotonic_ms()), self._expired
        )
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        self._timers.close()
        await self.shards.close()

    def kill(self) -> None:
        """Stop at once, as the death of the process would."""
        self._closed = True
        self._timers.close()
        self.shards.kill()

    # Who leads

    def on_elected(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """This node leads the partition: its shard is read from the log."""
        if partition.topic == self._topic:
            self.shards.on_elected(partition.partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """It leads it no more: its shard is gone when this returns, and all who wait are told."""
        if partition.topic == self._topic:
            self.shards.on_resigned(partition.partition, leader_epoch)

    # Operations

    def write(self, key: str, operation: Callable[[S, C], T], requester: Reply | None = None) -> T:
        """Run an operation on the shard of `key` and append what it decides, in this turn.

        Its replies leave when that is committed. `requester` is the reply of whoever asks: what
        the operation raises is said to it by the caller.
        """
        return self._run(self._find(key), operation, requester)

    def read(
        self, key: str, operation: Callable[[S], T], reply: Callable[[T | ApiError], None]
    ) -> None:
        """Reply with what `operation` finds, once all that it may rest on is committed."""
        loaded = self._find(key)
        _reply_when_committed(loaded, operation(loaded.shard), reply)

    def read_each(
        self,
        reads: Iterable[tuple[str, Callable[[S], T]]],
        refuse: Callable[[str, ApiError], T],
        reply: Callable[[list[T]], None],
    ) -> None:
        """Several reads with one reply; one that is refused is a value among the others."""
        gathered = _Gathered(refuse, reply)
        for key, operation in reads:
            try:
                loaded = self._find(key)
                gathered.put(key, operation(loaded.shard), loaded)
            except ApiError as error:
                gathered.put(key, refuse(key, error))
        gathered.reply_when_committed()

    def write_each(
        self,
        writes: Iterable[tuple[str, Callable[[S, C], T]]],
        refuse: Callable[[str, ApiError], T],
        reply: Callable[[list[T]], None],
    ) -> None:
        """Several writes with one reply, of what the operations return."""
        gathered = _Gathered(refuse, reply)
        for key, operation in writes:
            try:
                loaded = self._find(key)
                gathered.put(key, self._run(loaded, operation), loaded)
            except ApiError as error:
                gathered.put(key, refuse(key, error))
        gathered.reply_when_committed()

    def read_all(
        self, operation: Callable[[S], T], reply: Callable[[list[T] | ApiError], None]
    ) -> None:
        """Read all shards that are here; refused while there are any still to be loaded."""
        refusal = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.shards.is_loading:
            raise refusal

        def finish(values: list[T | None]) -> None:
            # Of a shard that was unloaded meanwhile nothing may be told, and the rest is not all.
            found = [value for value in values if value is not None]
            reply(found if len(found) == len(values) else refusal)

        gathered: _Gathered[int, T | None] = _Gathered(lambda _, __: None, finish)
        for loaded in self.shards:
            gathered.put(loaded.index, operation(loaded.shard), loaded)
        gathered.reply_when_committed()

    async def publish(self, before: Image, image: Image, delta: Delta) -> None:
        """Tell the shards what has changed in the cluster, with a turn for others in between."""
        for loaded in self.shards:
            try:
                for piece in loaded.shard.metadata_changed(before, image, delta):
                    if self._closed or not self.shards.has(loaded):
                        break  # a shard that is loaded anew looks at the cluster by itself
                    self._run_piece(loaded, piece)
                    await asyncio.sleep(0)
            except Exception:
                logger.exception("a change of the metadata failed: shard=%s", self._name(loaded))

    # Steps

    def _find(self, key: str) -> LoadedShard[S]:
        index = self._partition_of(key)
        if index is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self.shards.find(index)

    def _run(
        self,
        loaded: LoadedShard[S],
        operation: Callable[[S, C], T],
        requester: Reply | None = None,
    ) -> T:
        result = self._new_result(int(self._clock.monotonic_ms()), self._clock.now_ms())
        try:
            outcome = operation(loaded.shard, result)
        except Exception:
            # What it raises before it has decided anything changes nothing.
            if not result.is_empty:
                self._throw_away(loaded, result, requester)
            raise
        if not result.is_empty:
            loaded.writer.write(result.encoded, result.replies, result.time_ms)
        for key, deadline_ms in result.timers:
            self._timers.schedule((loaded.index, loaded.number, key), deadline_ms)
        return outcome

    def _run_piece(self, loaded: LoadedShard[S], piece: Callable[[C], None]) -> None:
        self._run(loaded, lambda _, result: piece(result))

    def _loaded(self, loaded: LoadedShard[S]) -> None:
        self._run(loaded, lambda shard, result: shard.loaded(result))

    def _expired(self, timer: tuple[int, int, TimerKey]) -> None:
        index, number, key = timer
        loaded = self.shards.get(index)
        if loaded is not None and loaded.number == number:
            self._run(loaded, lambda shard, result: shard.timer(key, result))

    # Failures

    def _throw_away(
        self, loaded: LoadedShard[S], result: C, requester: Reply | None = None
    ) -> None:
        """Nobody knows what state a decision left that failed half way: read the shard anew."""
        logger.exception("a decision failed half way: shard=%s", self._name(loaded))
        others = [each for each in result.replies if each.reply is not requester]
        fail_replies(others, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._unload(loaded, requester)
        # What was decided before it is whole. Its failure finds the shard gone.
        loaded.writer.append_now()

    def _write_failed(self, loaded: LoadedShard[S], code: ErrorCode) -> None:
        """What the log did not take must not be believed: read the shard anew."""
        if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # That one is no failure: the partition resigns, and says so to who waits there first.
            logger.error("records not written: shard=%s error=%s", self._name(loaded), code.name)
        self._unload(loaded)

    def _unload(self, loaded: LoadedShard[S], requester: Reply | None = None) -> None:
        if self.shards.has(loaded):
            self.shards.unload_and_reload(loaded)
            _abandon(loaded, requester)

    def _resigned(self, loaded: LoadedShard[S]) -> None:
        loaded.writer.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        _abandon(loaded)

    def _name(self, loaded: LoadedShard[S]) -> TopicPartition:
        return TopicPartition(self._topic, loaded.index)


def _abandon(loaded: LoadedShard[Any], requester: Reply | None = None) -> None:
    """Who waits in a shard for others, waits elsewhere from now on."""
    error = ApiError(ErrorCode.NOT_COORDINATOR)
    waiting = [reply for reply in loaded.shard.abandoned() if reply is not requester]
    call_each(logger, "a refusal", waiting, lambda reply: cast(ReplyCallback, reply)(error))


def _reply_when_committed(
    loaded: LoadedShard[Any], value: T, reply: Callable[[T | ApiError], None]
) -> None:
    def committed(outcome: Message | ApiError) -> None:
        reply(outcome if isinstance(outcome, ApiError) else value)

    if loaded.writer.is_committed:
        reply(value)
    else:
        loaded.writer.when_committed(committed)


class _Gathered(Generic[K, T]):
    """Values of several shards that leave together, once all they rest on is committed."""

    __slots__ = ("_refuse", "_reply", "_uncommitted", "_values")

    def __init__(
        self, refuse: Callable[[K, ApiError], T], reply: Callable[[list[T]], None]
    ) -> None:
        """`refuse` makes the value of a key whose shard was unloaded meanwhile."""
        self._refuse = refuse
        self._reply = reply
        self._values: list[T] = []
        self._uncommitted: dict[int, tuple[K, LoadedShard[Any]]] = {}

    def put(self, key: K, value: T, loaded: LoadedShard[Any] | None = None) -> None:
        """The next value; without a shard it rests on nothing."""
        if loaded is not None and not loaded.writer.is_committed:
            self._uncommitted[len(self._values)] = key, loaded
        self._values.append(value)

    def reply_when_committed(self) -> None:
        if not self._uncommitted:
            self._reply(self._values)
        for place, (_, loaded) in tuple(self._uncommitted.items()):
            loaded.writer.when_committed(partial(self._committed, place))

    def _committed(self, place: int, outcome: Message | ApiError) -> None:
        key, _ = self._uncommitted.pop(place)
        if isinstance(outcome, ApiError):
            self._values[place] = self._refuse(key, outcome)
        if not self._uncommitted:
            self._reply(self._values)
