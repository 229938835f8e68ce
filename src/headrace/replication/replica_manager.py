"""All partitions of this node, kept in step with the metadata image.

The image says what should exist, and which of it this node leads; this makes the partitions
agree: gives them their roles, opens what is new, closes what is gone or was moved to other nodes,
hands changed configs to the logs. It runs where the image is applied, so whoever sees the new
image finds its partitions ready, or, where there are many, gets a retriable error.

    online    its log is open: it leads, or follows
    opening   a worker reads its log; until then requests are answered as by a node that does not
              lead it
    offline   the image wants it here and its log could not be opened: every request is answered
              with KAFKA_STORAGE_ERROR, nothing on disk is touched, the next start tries again;
              one that is new and was never open is tried again soon
    absent    the image does not want it here; only when it has caught up with the cluster may
              data on disk be called stray

Other clients wait while the event loop is here, so lists of partitions are worked off in slices
and the disk is left to a worker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.ids import NodeId, Offset, TopicId, TopicPartition
from headrace.core.runtime import Executor
from headrace.core.shared_calls import call_each
from headrace.core.topic_configs import TopicConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.metadata.delta import Delta
from headrace.metadata.image import (
    Image,
    PartitionRegistration,
    Topic,
)
from headrace.replication.high_watermark_checkpoint import HighWatermarkCheckpoint
from headrace.replication.leadership import LeadershipListener, LeadershipListeners
from headrace.replication.partition import FlushRequest, Partition
from headrace.replication.settings import TopicSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
Overrides = tuple[tuple[str, str], ...]

# Partitions per turn of the event loop, and per call of the worker that opens their logs.
PARTITIONS_PER_TURN: Final = 50
# Directories renamed per call of a worker, so that a flush finds a free one soon.
RENAMES_PER_CALL: Final = 200


class _NewPartition(NamedTuple):
    """One that the image wants here and that is not open."""

    key: TopicPartition
    topic_id: TopicId
    registration: PartitionRegistration
    settings: TopicSettings


class _HeldTopic:
    """What of a topic is on this node, so that finding it costs nothing per partition elsewhere."""

    __slots__ = ("id", "offline", "partitions")

    def __init__(self, id: TopicId) -> None:
        self.id = id
        self.partitions: dict[int, Partition] = {}
        self.offline: set[int] = set()

    @property
    def indexes(self) -> tuple[int, ...]:
        return (*self.partitions, *self.offline)


class ReplicaManager:
    """Find a partition by topic and index; apply each new image."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: NodeId,
        config: BrokerConfig,
        executor: Executor,
        high_watermarks: HighWatermarkCheckpoint,
        *,
        request_flush: FlushRequest | None,
    ) -> None:
        self._executor = executor
        self.directory = directory
        self._node_id = node_id
        self._static_config = config
        self.config = config
        self._high_watermarks = high_watermarks
        self._request_flush = request_flush
        self._topics: dict[str, _HeldTopic] = {}
        # Offline ones that were made while this node ran: they hold nothing yet.
        self._never_opened: set[TopicPartition] = set()
        self._image = Image("")
        # The newest one that every partition here has its role from.
        self._applied = self._image
        self._partitions_visited = 0
        self._settings: WeakValueDictionary[Overrides, TopicSettings] = WeakValueDictionary()
        self._leadership = LeadershipListeners()
        # One change after the other: all of them wait for workers in between.
        self._changing = asyncio.Lock()

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        """Call it when the leadership of a partition changes here, beginning with those led now."""
        for partition in list(self):
            if partition.is_leader:
                listener.on_elected(partition.id, partition.leader_epoch)
        self._leadership.add(listener)

    async def in_worker(self, call: Callable[[], T]) -> T:
        """Run what waits for the disk away from the event loop."""
        return await self._executor.run(call)

    async def checkpoint_log_starts(self) -> None:
        """Bring deletions of records to disk."""
        try:
            await self._executor.run(lambda: self.directory.checkpoint_log_starts(durable=True))
        except OSError as error:
            raise StorageError(f"cannot write down where logs start: {error}") from error

    async def checkpoint_high_watermarks(self) -> None:
        """Write down what is known to be committed, for replicas that do not lead at the start."""
        write = partial(self._high_watermarks.write, self._known_high_watermarks())
        try:
            await self._executor.run(write)
        except OSError as error:
            raise StorageError(f"cannot write down high watermarks: {error}") from error

    def close(self) -> None:
        """At a clean stop, behind the last flush: leave the high watermarks for the next start."""
        try:
            self._high_watermarks.write(self._known_high_watermarks())
        except OSError as error:
            # Nothing else depends on it.
            logger.error("high watermarks are not written down: error=%s", error)

    def _known_high_watermarks(self) -> dict[TopicPartition, Offset]:
        known = {partition.id: partition.high_watermark for partition in self}
        known.update((key, self._high_watermarks.offset(key)) for key in self.offline)
        return known

    def find(self, topic: str, index: int) -> Partition | None:
        held = self._topics.get(topic)
        return None if held is None else held.partitions.get(index)

    def require(self, topic: str, index: int) -> Partition:
        """Like `find`; raises the error for a client where there is none."""
        partition = self.find(topic, index)
        if partition is not None:
            return partition
        if self.is_offline(topic, index):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._image.partition(topic, index) is not None:
            # Elsewhere, or not yet, or no longer: the client shall refresh its metadata.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def offline(self) -> tuple[TopicPartition, ...]:
        """Partitions whose logs could not be opened."""
        return tuple(
            TopicPartition(name, index)
            for name, held in self._topics.items()
            for index in held.offline
        )

    def is_offline(self, topic: str, index: int) -> bool:
        held = self._topics.get(topic)
        return held is not None and index in held.offline

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(held.partitions.values() for held in self._topics.values())

    def __len__(self) -> int:
        return sum(len(held.partitions) for held in self._topics.values())

    async def load(self, image: Image) -> None:
        """Open every partition that the image assigns to this node."""
        async with self._changing:
            self._image = image
            self._apply_broker_configs(image)
            new = [
                _NewPartition(
                    TopicPartition(topic.name, index),
                    topic.id,
                    registration,
                    self._settings_of(image, topic.name),
                )
                for topic in image.topics.values()
                for index, registration in self._local_partitions(topic)
            ]
            await self._open_all(new, loads=True)
            self._applied = image

    async def rename_stray_directories(self) -> None:
        """Put aside what lies on disk and is, by the metadata, none of this node's.

        Only to be called once the image has caught up with the cluster: an older one may not know
        yet of what is here.
        """
        async with self._changing:
            image, node_id = self._image, self._node_id

            def is_assigned(partition: TopicPartition) -> bool:
                registration = image.partition(*partition)
                return registration is not None and node_id in registration.replicas

            on_disk = sorted(self.directory.partitions_on_disk)
            strays = [partition for partition in on_disk if not is_assigned(partition)]
            if strays:
                rename = partial(self.directory.rename_stray_directories, strays)
                await self._executor.run(rename)

    async def publish(self, before: Image, image: Image, delta: Delta) -> None:
        """Bring the partitions from one image to the next."""
        async with self._changing:
            await self._publish(before, image, delta)
            self._applied = image

    async def _publish(self, before: Image, image: Image, delta: Delta) -> None:
        self._image = image
        broker_configs = {
            ConfigResource(ConfigResourceType.BROKER, ""),
            ConfigResource(ConfigResourceType.BROKER, str(self._node_id)),
        }
        if not broker_configs.isdisjoint(delta.configs):
            self._apply_broker_configs(image)
            for partition in list(self):
                self._apply_settings_to(image, partition)
                await self._yield_to_loop()
        names = sorted(delta.topics)
        # First what is gone, so that its directories have made way for what is new. At once it is
        # found no more: who sees the new image must not write to a log that is to be removed,
        # under a name that was given anew.
        gone = [
            (name, self._topics.pop(name))
            for name in names
            if (held := self._topics.get(name)) is not None and not _is_same(held, image, name)
        ]
        for name, held in gone:
            for index in held.indexes:
                self._remove(name, held, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await self._yield_to_loop()
        new: list[_NewPartition] = []
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                await self._remove_moved(topic)
                new += await self._apply_registrations(topic, self._settings_of(image, name))
        while await self._rename_deleted():
            pass
        await self._open_all(new)
        for name in names:
            _log_changes(before, image, name)
        for resource in sorted(delta.configs):
            if resource.type is ConfigResourceType.TOPIC:
                await self._apply_topic_configs(image, resource.name)

    async def retry_never_opened(self) -> None:
        """Try again to open what is new and could not be opened: a disk may have space again."""
        async with self._changing:
            again = []
            for key in tuple(self._never_opened):
                topic = self._image.topics[key.topic]
                registration = topic.partitions[key.partition]
                settings = self._settings_of(self._image, key.topic)
                again.append(_NewPartition(key, topic.id, registration, settings))
            await self._open_all(again)
            for each in again:
                if self.find(*each.key) is not None:
                    self._never_opened.discard(each.key)
                    logger.info("partition is online: partition=%s", each.key)

    async def _yield_to_loop(self) -> None:
        """Let others run after every so many partitions."""
        self._partitions_visited += 1
        if self._partitions_visited % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)

    def _apply_broker_configs(self, image: Image) -> None:
        self._settings.clear()
        default, own = image.broker_configs(None), image.broker_configs(self._node_id)
        self.config = config = self._static_config.with_dynamic(default, own)
        for stored, allowed in ((default, config.dynamic_default), (own, config.dynamic)):
            for name in sorted(stored.keys() - allowed.keys()):
                logger.warning(
                    "a stored config is not valid and is left out: key=%s value=%s",
                    name,
                    stored[name],
                )

    def _local_partitions(self, topic: Topic) -> Iterator[tuple[int, PartitionRegistration]]:
        for index, registration in enumerate(topic.partitions):
            if self._node_id in registration.replicas:
                yield index, registration

    # What is here already

    async def _remove_moved(self, topic: Topic) -> None:
        """Replicas that other nodes have now."""
        held = self._topics.get(topic.name)
        if held is None:
            return
        for index in held.indexes:
            if self._node_id not in topic.partitions[index].replicas:
                self._remove(topic.name, held, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                logger.info("replica moved away: topic=%s partition=%d", topic.name, index)
            await self._yield_to_loop()

    async def _apply_registrations(
        self, topic: Topic, settings: TopicSettings
    ) -> list[_NewPartition]:
        """Give the partitions of a topic their roles; returns those that have to be opened."""
        held = self._topics.get(topic.name)
        applied = self._applied.topics.get(topic.name)
        known = () if applied is None or applied.id != topic.id else applied.partitions
        new = []
        for index, registration in self._local_partitions(topic):
            partition = None if held is None else held.partitions.get(index)
            if partition is None:
                if held is None or index not in held.offline:
                    key = TopicPartition(topic.name, index)
                    new.append(_NewPartition(key, topic.id, registration, settings))
            elif index >= len(known) or known[index] != registration:
                try:
                    self._take_role(partition, registration)
                except Exception as error:
                    self._mark_offline(partition.id, topic.id, error, until="next start")
            await self._yield_to_loop()
        return new

    def _take_role(self, partition: Partition, registration: PartitionRegistration) -> None:
        led_in = partition.leader_epoch if partition.is_leader else None
        if registration.leader == self._node_id:
            partition.become_leader(registration)
            if led_in != partition.leader_epoch:
                self._leadership.elected(partition.id, partition.leader_epoch)
        else:
            partition.become_follower(registration)
            if led_in is not None:
                self._leadership.resigned(partition.id, led_in)

    def _remove(self, name: str, held: _HeldTopic, index: int, reason: ErrorCode) -> None:
        """Close a partition that is no longer wanted here; its directory is renamed later."""
        key = TopicPartition(name, index)
        partition = held.partitions.pop(index, None)
        held.offline.discard(index)
        self._never_opened.discard(key)
        if partition is not None:
            self._close(partition, reason)
        self.directory.delete(key)

    def _close(self, partition: Partition, reason: ErrorCode) -> None:
        led = partition.is_leader
        partition.close(reason)
        if led:
            self._leadership.resigned(partition.id, partition.leader_epoch)

    async def _rename_deleted(self) -> bool:
        if not self.directory.has_deleted:
            return False
        return await self._executor.run(partial(self.directory.rename_deleted, RENAMES_PER_CALL))

    # What is new here

    async def _open_all(self, new: Sequence[_NewPartition], *, loads: bool = False) -> None:
        """Open partitions; one that fails is offline, and costs the others nothing."""
        until = "next start" if loads else "it can be created"
        for start in range(0, len(new), PARTITIONS_PER_TURN):
            some = new[start : start + PARTITIONS_PER_TURN]
            opened = await self._executor.run(partial(self._open_logs, some))
            for each, log in zip(some, opened, strict=True):
                try:
                    if isinstance(log, Exception):
                        raise log
                    self._take_in(each, log)
                except Exception as error:
                    self._mark_offline(each.key, each.topic_id, error, until=until)
                    if not loads:
                        self._never_opened.add(each.key)

    def _open_logs(self, new: Iterable[_NewPartition]) -> list[PartitionLog | Exception]:
        """In a worker: a log that was not closed properly has to be read."""
        opened: list[PartitionLog | Exception] = []
        for each in new:
            try:
                opened.append(self.directory.open_log(each.key, each.topic_id, each.settings.log))
            except Exception as error:
                opened.append(error)
        return opened

    def _take_in(self, new: _NewPartition, log: PartitionLog) -> None:
        key, topic_id, registration, settings = new
        self.directory.add(key, log)
        partition = Partition(
            key,
            topic_id,
            log,
            settings,
            request_flush=self._request_flush,
            high_watermark=self._high_watermarks.offset(key),
        )
        held = self._held(key.topic, topic_id)
        held.partitions[key.partition] = partition
        held.offline.discard(key.partition)
        self._take_role(partition, registration)

    def _held(self, name: str, topic_id: TopicId) -> _HeldTopic:
        held = self._topics.get(name)
        if held is None:
            held = self._topics[name] = _HeldTopic(topic_id)
        return held

    def _mark_offline(
        self, key: TopicPartition, topic_id: TopicId, error: Exception, *, until: str
    ) -> None:
        logger.error(
            "partition is offline: partition=%s until=%s error=%s",
            key,
            until,
            error,
            # Whatever else it may be is a mistake of ours and shown whole.
            exc_info=None if isinstance(error, HeadraceError | OSError) else error,
        )
        held = self._held(key.topic, topic_id)
        held.offline.add(key.partition)
        partition = held.partitions.pop(key.partition, None)
        if partition is not None:
            self._close(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.directory.take_offline(key)

    # Configs

    async def _apply_topic_configs(self, image: Image, name: str) -> None:
        held = self._topics.get(name)
        for partition in () if held is None else tuple(held.partitions.values()):
            self._apply_settings_to(image, partition)
            await self._yield_to_loop()

    def _apply_settings_to(self, image: Image, partition: Partition) -> None:
        call_each(logger, "applying settings", (partition,), partial(self._apply_settings, image))

    def _apply_settings(self, image: Image, partition: Partition) -> None:
        partition.update_settings(self._settings_of(image, partition.id.topic))

    def _settings_of(self, image: Image, name: str) -> TopicSettings:
        """Topics with equal overrides share one object; most have none."""
        overrides = image.topic_configs(name)
        key = tuple(sorted(overrides.items()))
        settings = self._settings.get(key)
        if settings is None:
            settings = TopicSettings(TopicConfig.resolve(overrides, self.config), self.config)
            self._settings[key] = settings
        return settings


def _is_same(held: _HeldTopic, image: Image, name: str) -> bool:
    """Whether the image has this very topic, and not one that was given its name anew."""
    topic = image.topics.get(name)
    return topic is not None and topic.id == held.id


def _is_deleted(old: Topic, image: Image) -> bool:
    new = image.topics.get(old.name)
    return new is None or new.id != old.id


def _log_changes(before: Image, image: Image, name: str) -> None:
    """A line for what has become of a topic."""
    old, new = before.topics.get(name), image.topics.get(name)
    if old is not None and _is_deleted(old, image):
        logger.info("topic deleted: topic=%s partitions=%d", name, len(old.partitions))
    if new is not None and (old is None or new.id != old.id):
        logger.info("topic created: topic=%s partitions=%d", name, len(new.partitions))
    elif new is not None and old is not None and len(new.partitions) > len(old.partitions):
        logger.info("partitions added: topic=%s partitions=%d", name, len(new.partitions))
