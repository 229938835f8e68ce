"""All partitions of this node, kept in step with the metadata image.

The image says what should exist; this makes the logs agree: opens what is new, closes what is
gone, hands changed configs to the logs. It runs where the image is applied, so whoever sees the
new image finds its partitions ready, or, where there are many, gets a retriable error.

    online    its log is open
    offline   the image wants it here and its log could not be opened: every request is answered
              with KAFKA_STORAGE_ERROR, nothing on disk is touched, the next start tries again;
              one that is new and was never open is tried again soon
    absent    the image does not want it here; only then may data on disk be called stray

Other clients wait while the event loop is here, so lists of partitions are worked off in slices
and the disk is left to a worker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, StorageError
from headrace.core.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from headrace.core.runtime import Executor
from headrace.core.shared_calls import call_each
from headrace.core.topic_configs import TopicConfig
from headrace.log.directory import LogDirectory
from headrace.metadata.delta import Delta
from headrace.metadata.image import (
    ConfigResource,
    ConfigResourceType,
    Image,
    PartitionRegistration,
    Topic,
)
from headrace.replication.leadership import LeadershipListener, LeadershipListeners
from headrace.replication.partition import FlushRequest, Partition
from headrace.replication.settings import TopicSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
Overrides = tuple[tuple[str, str], ...]

# Partitions per turn of the event loop: some milliseconds where each of them is created.
PARTITIONS_PER_TURN: Final = 50
# Directories renamed per call of a worker, so that a flush finds a free one soon.
RENAMES_PER_CALL: Final = 200


class ReplicaManager:
    """Find a partition by topic and index; apply each new image."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: NodeId,
        config: BrokerConfig,
        executor: Executor,
        *,
        request_flush: FlushRequest | None,
    ) -> None:
        self._executor = executor
        self.directory = directory
        self._node_id = node_id
        self._static_config = config
        self.config = config
        self._request_flush = request_flush
        # By topic, so that all of a topic can go at once, however many they are.
        self._topics: dict[str, dict[int, Partition]] = {}
        self._offline: dict[TopicPartition, TopicId] = {}
        # Those of them that were made while this node ran: they hold nothing yet.
        self._never_opened: set[TopicPartition] = set()
        self._image = Image("")
        self._partitions_visited = 0
        self._settings: WeakValueDictionary[Overrides, TopicSettings] = WeakValueDictionary()
        self._leadership = LeadershipListeners()

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        """Call it when the leadership of a partition changes here, beginning with those led now."""
        for partition in list(self):
            if self._leads(partition):
                listener.on_elected(partition.id, partition.leader_epoch)
        self._leadership.add(listener)

    def _leads(self, partition: Partition) -> bool:
        return partition.leader == self._node_id and not partition.closed

    async def in_worker(self, call: Callable[[], T]) -> T:
        """Run what waits for the disk away from the event loop."""
        return await self._executor.run(call)

    async def checkpoint_log_starts(self) -> None:
        """Bring deletions of records to disk."""
        try:
            await self._executor.run(lambda: self.directory.checkpoint_log_starts(durable=True))
        except OSError as error:
            raise StorageError(f"cannot write down where logs start: {error}") from error

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def require(self, topic: str, index: int) -> Partition:
        """Like `find`; raises the error for a client where there is none."""
        partition = self.find(topic, index)
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._image.partition(topic, index) is not None:
            # Not yet, or no longer: the client shall refresh its metadata.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def offline(self) -> tuple[TopicPartition, ...]:
        """Partitions whose logs could not be opened."""
        return tuple(self._offline)

    def is_offline(self, topic: str, index: int) -> bool:
        return bool(self._offline) and (topic, index) in self._offline

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(map(dict.values, self._topics.values()))

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def load(self, image: Image) -> None:
        """Open every partition of the image; what lies on disk beyond it is left-over."""
        self._image = image
        self._apply_broker_configs(image)
        for topic in image.topics.values():
            settings = self._settings_of(image, topic.name)
            for index, registration in self._local_partitions(topic):
                self._apply_registration(topic, index, registration, settings, loads=True)
        wanted = self._is_assigned
        self.directory.rename_stray_directories(
            partition
            for partition in sorted(self.directory.partitions_on_disk)
            if not wanted(image, partition)
        )

    async def publish(self, before: Image, image: Image, delta: Delta) -> None:
        """Bring the partitions from one image to the next."""
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
            (old, self._topics.pop(name, {}))
            for name in names
            if (old := before.topics.get(name)) is not None and _is_deleted(old, image)
        ]
        for old, partitions in gone:
            await self._close_all(old, partitions)
        while await self._rename_deleted():
            pass
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                await self._purge_checkpoints(topic)
                settings = self._settings_of(image, name)
                for index, registration in self._local_partitions(topic):
                    self._apply_registration(topic, index, registration, settings)
                    await self._yield_to_loop()
            _log_changes(before, image, name)
        for resource in sorted(delta.configs):
            if resource.type is ConfigResourceType.TOPIC:
                await self._apply_topic_configs(image, resource.name)

    async def retry_never_opened(self) -> None:
        """Try again to open what is new and could not be opened: a disk may have space again."""
        for key in tuple(self._never_opened):
            topic = self._image.topics.get(key.topic)
            registration = self._image.partition(*key)
            if topic is None or registration is None or self._offline.get(key) != topic.id:
                continue  # deleted, or about to be
            del self._offline[key]
            settings = self._settings_of(self._image, key.topic)
            self._apply_registration(topic, key.partition, registration, settings)
            if key not in self._offline:
                self._never_opened.discard(key)
                logger.info("partition is online: partition=%s", key)
            await self._yield_to_loop()

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

    def _is_assigned(self, image: Image, partition: TopicPartition) -> bool:
        registration = image.partition(partition.topic, partition.partition)
        return registration is not None and self._node_id in registration.replicas

    def _apply_registration(
        self,
        topic: Topic,
        index: int,
        registration: PartitionRegistration,
        settings: TopicSettings,
        *,
        loads: bool = False,
    ) -> None:
        """Open a partition if it is new, and take over what the image says about it.

        One that fails is offline, and costs the others nothing.
        """
        key = TopicPartition(topic.name, index)
        if key in self._offline:
            return
        partition = self.find(*key)
        is_new = partition is None and not loads
        try:
            if partition is None:
                log = self.directory.create(key, topic.id, settings.log)
                partition = Partition(
                    key, topic.id, log, settings, request_flush=self._request_flush
                )
                self._topics.setdefault(topic.name, {})[index] = partition
            led_in = partition.leader_epoch if self._leads(partition) else None
            partition.become_leader(
                registration.leader,
                LeaderEpoch(registration.leader_epoch),
                registration.partition_epoch,
                tuple(map(NodeId, registration.replicas)),
                tuple(map(NodeId, registration.isr)),
            )
            if not self._leads(partition):
                if led_in is not None:
                    self._leadership.resigned(key, led_in)
            elif led_in != partition.leader_epoch:
                self._leadership.elected(key, partition.leader_epoch)
        except Exception as error:
            logger.error(
                "partition is offline: partition=%s until=%s error=%s",
                key,
                "it can be created" if is_new else "next start",
                error,
                # Whatever else it may be is a mistake of ours and shown whole.
                exc_info=None if isinstance(error, HeadraceError | OSError) else error,
            )
            self._mark_offline(key, topic.id)
            if is_new:
                self._never_opened.add(key)

    def _mark_offline(self, key: TopicPartition, topic_id: TopicId) -> None:
        self._offline[key] = topic_id
        partition = self.find(*key)
        if partition is not None:
            del self._topics[key.topic][key.partition]
            led = self._leads(partition)
            partition.closed = True
            partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
            self.directory.take_offline(key)
            if led:
                self._leadership.resigned(key, partition.leader_epoch)

    async def _close_all(self, old: Topic, partitions: dict[int, Partition]) -> None:
        """Close a deleted topic's partitions; their directories are renamed later."""
        for index in range(len(old.partitions)):
            key = TopicPartition(old.name, index)
            partition = partitions.get(index)
            if partition is not None:
                led = self._leads(partition)
                partition.close()
                self.directory.delete(key)
                if led:
                    self._leadership.resigned(key, partition.leader_epoch)
            elif self._offline.get(key) == old.id:
                del self._offline[key]
                self._never_opened.discard(key)
                self.directory.delete(key)
            await self._yield_to_loop()

    async def _rename_deleted(self) -> bool:
        if not self.directory.has_deleted:
            return False
        return await self._executor.run(partial(self.directory.rename_deleted, RENAMES_PER_CALL))

    async def _purge_checkpoints(self, topic: Topic) -> None:
        """Here and in a worker, what each new partition would otherwise do by itself."""
        for index, _ in self._local_partitions(topic):
            key = TopicPartition(topic.name, index)
            if self.find(*key) is None and self.directory.has_checkpoint_entry(key):
                try:
                    await self._executor.run(self.directory.purge_checkpoints)
                except OSError as error:
                    # Each partition that needs it will fail by itself; others do not need it.
                    logger.error(
                        "cannot forget what was deleted: topic=%s error=%s", topic.name, error
                    )
                return
            await self._yield_to_loop()

    async def _apply_topic_configs(self, image: Image, name: str) -> None:
        topic = image.topics.get(name)
        for index in range(len(topic.partitions) if topic is not None else 0):
            partition = self.find(name, index)
            if partition is not None:
                self._apply_settings_to(image, partition)
            await self._yield_to_loop()

    def _apply_settings_to(self, image: Image, partition: Partition) -> None:
        call_each(logger, "applying settings", (partition,), partial(self._apply_settings, image))

    def _apply_settings(self, image: Image, partition: Partition) -> None:
        partition.settings = self._settings_of(image, partition.id.topic)
        partition.log.update_config(partition.settings.log)

    def _settings_of(self, image: Image, name: str) -> TopicSettings:
        """Topics with equal overrides share one object; most have none."""
        overrides = image.topic_configs(name)
        key = tuple(sorted(overrides.items()))
        settings = self._settings.get(key)
        if settings is None:
            settings = TopicSettings(TopicConfig.resolve(overrides, self.config), self.config)
            self._settings[key] = settings
        return settings


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
