"""All partitions of this node, kept in step with the metadata image.

The image says what should exist; this makes the logs agree: opens what is new, retires what is
gone, hands changed configs to the logs. It runs where the image is applied, so whoever sees
the new image finds its partitions ready.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakValueDictionary

from headrace.controller.image import ConfigResource, Delta, Image, ResourceType, Topic
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import HeadraceError
from headrace.core.ids import LeaderEpoch, NodeId, TopicPartition
from headrace.core.seams import Executor
from headrace.core.shared_calls import call_each
from headrace.core.topic_configs import TopicConfig
from headrace.log.directory import LogDirectory
from headrace.replication.partition import Partition
from headrace.replication.settings import TopicSettings

logger = logging.getLogger(__name__)

Overrides = tuple[tuple[str, str], ...]


class Replicas:
    """Find a partition by topic and index; follow the image."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: NodeId,
        config: BrokerConfig,
        executor: Executor,
        *,
        on_dirty: Callable[[Partition], None] | None,
    ) -> None:
        self._executor = executor
        self.directory = directory
        self._node_id = node_id
        self._static_config = config
        self.config = config
        self._on_dirty = on_dirty
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._settings: WeakValueDictionary[Overrides, TopicSettings] = WeakValueDictionary()

    async def checkpoint_log_starts(self) -> None:
        """Bring deletions of records to disk."""
        await self._executor.run(lambda: self.directory.checkpoint_log_starts(durable=True))

    def find(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def load(self, image: Image) -> None:
        """Open every partition of the image; what lies on disk beyond it is left-over."""
        self._take_broker_configs(image)
        for name in image.topics:
            self._follow_topic(image, name)
        self.directory.set_aside_unknown()

    def follow(self, before: Image, image: Image, delta: Delta) -> None:
        """Bring the partitions from one image to the next."""
        broker_configs = {
            ConfigResource(ResourceType.BROKER, ""),
            ConfigResource(ResourceType.BROKER, str(self._node_id)),
        }
        if not broker_configs.isdisjoint(delta.configs):
            self._take_broker_configs(image)
            self._apply_settings_each(image, self._partitions.values())
        for name in sorted(delta.topics):
            self._follow_topic(image, name)
            _tell(before, image, name)
        for resource in sorted(delta.configs):
            if resource.type is ResourceType.TOPIC:
                self._follow_configs(image, resource.name)

    def _take_broker_configs(self, image: Image) -> None:
        self._settings.clear()
        self.config = self._static_config.with_dynamic(
            image.broker_configs(None), image.broker_configs(self._node_id)
        )

    def _follow_topic(self, image: Image, name: str) -> None:
        """One topic whose disk fails must not keep the others from being followed."""
        try:
            self._bring_up_to(image, name)
        except Exception as error:
            expected = isinstance(error, HeadraceError | OSError)
            logger.error(
                "a topic could not be brought up to its metadata: topic=%s error=%s",
                name,
                error,
                exc_info=None if expected else error,
            )

    def _bring_up_to(self, image: Image, name: str) -> None:
        topic = image.topics.get(name)
        index = 0
        while (partition := self._partitions.get((name, index))) is not None:
            if topic is None or partition.topic_id != topic.id:
                self._retire(partition)
            index += 1
        if topic is not None:
            self._lead(image, topic)

    def _lead(self, image: Image, topic: Topic) -> None:
        settings = self._settings_of(image, topic.name)
        for index, registration in enumerate(topic.partitions):
            if self._node_id not in registration.replicas:
                continue
            partition = self._partitions.get((topic.name, index))
            if partition is None:
                log = self.directory.create(
                    TopicPartition(topic.name, index), topic.id, settings.log
                )
                partition = Partition(
                    TopicPartition(topic.name, index),
                    topic.id,
                    log,
                    settings,
                    on_dirty=self._on_dirty,
                )
                self._partitions[topic.name, index] = partition
            partition.lead(
                registration.leader,
                LeaderEpoch(registration.leader_epoch),
                registration.partition_epoch,
                tuple(map(NodeId, registration.replicas)),
                tuple(map(NodeId, registration.isr)),
            )

    def _retire(self, partition: Partition) -> None:
        del self._partitions[partition.id]
        partition.retire()
        self.directory.delete(partition.id)

    def _follow_configs(self, image: Image, name: str) -> None:
        topic = image.topics.get(name)
        indexes = range(len(topic.partitions) if topic is not None else 0)
        found = (self._partitions.get((name, index)) for index in indexes)
        self._apply_settings_each(image, filter(None, found))

    def _apply_settings_each(self, image: Image, partitions: Iterable[Partition]) -> None:
        call_each(
            logger, "applying settings", partitions, lambda each: self._apply_settings(image, each)
        )

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


def _tell(before: Image, image: Image, name: str) -> None:
    """A line for what has become of a topic."""
    old, new = before.topics.get(name), image.topics.get(name)
    if old is not None and (new is None or new.id != old.id):
        logger.info("topic deleted: topic=%s partitions=%d", name, len(old.partitions))
    if new is not None and (old is None or new.id != old.id):
        logger.info("topic created: topic=%s partitions=%d", name, len(new.partitions))
    elif new is not None and old is not None and len(new.partitions) > len(old.partitions):
        logger.info("partitions added: topic=%s partitions=%d", name, len(new.partitions))
