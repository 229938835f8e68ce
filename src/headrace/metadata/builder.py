"""From one image to the next: apply records, then freeze.

A builder copies a map the first time a record touches it and shares every other one with the
image it started from; the partitions of a topic are copied once per batch, not once per record.
So one change in an image of ten thousand partitions costs a few flat copies, and a batch of a
thousand changes costs the same copies once.

`apply` never refuses a record that `controller.machine` decided. A record of a kind this
version does not know (a newer one wrote the log) is refused: an image that skips records would
be wrong in silence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import UUID

from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import StartupRefused
from headrace.core.ids import NodeId, Offset
from headrace.metadata.image import (
    BrokerEndpoint,
    BrokerRegistration,
    Image,
    PartitionRegistration,
    Topic,
)
from headrace.metadata.names import collision_key
from headrace.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

LEADER_UNCHANGED = -2
"""In a PartitionChangeRecord; any other leader, even the same one, starts a new epoch."""


class _CopyOnWriteMap(Generic[K, V]):
    """A map that is copied when it is first written to."""

    __slots__ = ("_copied", "view")

    def __init__(self, base: Mapping[K, V]) -> None:
        self.view = base
        self._copied: dict[K, V] | None = None

    def write(self) -> dict[K, V]:
        if self._copied is None:
            self.view = self._copied = dict(self.view)
        return self._copied


class ImageBuilder:
    """Collects records on top of `base`; `freeze` gives the image and what changed."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self._offset = base.offset
        self._epoch = base.epoch
        self._topics = _CopyOnWriteMap(base.topics)
        self._topics_by_id = _CopyOnWriteMap(base.topics_by_id)
        self._partitions: dict[UUID, dict[int, PartitionRegistration]] = {}
        self._configs = _CopyOnWriteMap(base.configs)
        self._own_configs: dict[ConfigResource, dict[str, str]] = {}
        self._brokers = _CopyOnWriteMap(base.brokers)
        self._features = _CopyOnWriteMap(base.features)
        self._colliding = _CopyOnWriteMap(base.colliding_names)
        self._next_producer_id = base.next_producer_id
        self._shared: dict[Any, Any] = {}

    @property
    def offset(self) -> Offset:
        """Of the last record applied."""
        return self._offset

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        """Apply records in order; each moves the offset by one."""
        count = 0
        for record in records:
            step = _STEPS.get(type(record))
            if step is None:
                raise StartupRefused(
                    f"the metadata log holds a {type(record).__name__}, which this version "
                    "does not know; start the version that wrote it"
                )
            step(self, record)
            count += 1
        self._offset = Offset(self._offset + count)

    def move_to(self, offset: Offset, epoch: int) -> None:
        """Stand at `offset` of the log, whatever was applied: control records count there too."""
        self._offset = offset
        self._epoch = epoch

    def freeze(self) -> Image:
        """The next image; the builder is used up."""
        for topic_id, partitions in self._partitions.items():
            topic = self._topics_by_id.view[topic_id]
            ordered = tuple(partitions[index] for index in range(len(partitions)))
            self._put_topic(Topic(topic.name, topic_id, ordered))
        return Image(
            cluster_id=self._base.cluster_id,
            offset=self._offset,
            epoch=self._epoch,
            topics=self._topics.view,
            topics_by_id=self._topics_by_id.view,
            configs=self._configs.view,
            brokers=self._brokers.view,
            features=self._features.view,
            next_producer_id=self._next_producer_id,
            colliding_names=self._colliding.view,
        )

    def _topic(self, record: TopicRecord) -> None:
        self._put_topic(Topic(record.name, record.topic_id))
        self._partitions[record.topic_id] = {}
        key = collision_key(record.name)
        if key is not None:
            names = self._colliding.view.get(key, frozenset())
            self._colliding.write()[key] = names | {record.name}

    def _partition(self, record: PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = PartitionRegistration(
            leader=NodeId(record.leader),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=self._share(tuple(record.replicas)),
            isr=self._share(tuple(record.isr)),
            removing_replicas=self._share(tuple(record.removing_replicas)),
            adding_replicas=self._share(tuple(record.adding_replicas)),
            directories=self._share(tuple(record.directories)),
            leader_recovery_state=record.leader_recovery_state,
            elr=self._share(tuple(record.eligible_leader_replicas or ())),
            last_known_elr=self._share(tuple(record.last_known_elr or ())),
        )

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        old = partitions[record.partition_id]
        leader_changed = record.leader != LEADER_UNCHANGED
        recovery = record.leader_recovery_state
        partitions[record.partition_id] = PartitionRegistration(
            leader=NodeId(record.leader) if leader_changed else old.leader,
            leader_epoch=old.leader_epoch + leader_changed,
            partition_epoch=old.partition_epoch + 1,
            replicas=self._changed(record.replicas, old.replicas),
            isr=self._changed(record.isr, old.isr),
            removing_replicas=self._changed(record.removing_replicas, old.removing_replicas),
            adding_replicas=self._changed(record.adding_replicas, old.adding_replicas),
            directories=self._changed(record.directories, old.directories),
            leader_recovery_state=old.leader_recovery_state if recovery == -1 else recovery,
            elr=self._changed(record.eligible_leader_replicas, old.elr),
            last_known_elr=self._changed(record.last_known_elr, old.last_known_elr),
        )

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topics_by_id.write().pop(record.topic_id)
        del self._topics.write()[topic.name]
        self._partitions.pop(record.topic_id, None)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
        if resource in self._configs.view:
            del self._configs.write()[resource]
            self._own_configs.pop(resource, None)
        key = collision_key(topic.name)
        if key is not None:
            rest = self._colliding.view[key] - {topic.name}
            if rest:
                self._colliding.write()[key] = rest
            else:
                del self._colliding.write()[key]

    def _config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        values = self._own_configs.get(resource)
        if values is None:
            values = dict(self._configs.view.get(resource, {}))
            self._own_configs[resource] = values
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._configs.write()[resource] = values
        else:
            self._configs.write().pop(resource, None)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers.write()[record.broker_id] = BrokerRegistration(
            id=NodeId(record.broker_id),
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                BrokerEndpoint(end.name, end.host, end.port, end.security_protocol)
                for end in record.end_points
            ),
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._brokers.view[record.broker_id]
        self._brokers.write()[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown
                if record.in_controlled_shutdown == 0
                else record.in_controlled_shutdown > 0
            ),
            directories=tuple(record.log_dirs) or broker.directories,
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._brokers.write().pop(record.broker_id, None)

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._features.write().pop(record.name, None)
        else:
            self._features.write()[record.name] = record.feature_level

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _no_op(self, record: NoOpRecord) -> None:
        """Kafka writes these to keep its log moving; they change nothing."""

    def _put_topic(self, topic: Topic) -> None:
        self._topics.write()[topic.name] = topic
        self._topics_by_id.write()[topic.id] = topic

    def _partitions_of(self, topic_id: UUID) -> dict[int, PartitionRegistration]:
        found = self._partitions.get(topic_id)
        if found is None:
            found = dict(enumerate(self._topics_by_id.view[topic_id].partitions))
            self._partitions[topic_id] = found
        return found

    def _changed(self, new: Iterable[T] | None, old: tuple[T, ...]) -> tuple[T, ...]:
        return old if new is None else self._share(tuple(new))

    def _share(self, value: tuple[T, ...]) -> tuple[T, ...]:
        """One object for equal tuples: most partitions have the same few replica lists."""
        shared: tuple[T, ...] = self._shared.setdefault(value, value)
        return shared


_STEPS: dict[type, Callable[[ImageBuilder, Any], None]] = {
    TopicRecord: ImageBuilder._topic,
    PartitionRecord: ImageBuilder._partition,
    PartitionChangeRecord: ImageBuilder._partition_change,
    RemoveTopicRecord: ImageBuilder._remove_topic,
    ConfigRecord: ImageBuilder._config,
    RegisterBrokerRecord: ImageBuilder._register_broker,
    BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    FeatureLevelRecord: ImageBuilder._feature_level,
    ProducerIdsRecord: ImageBuilder._producer_ids,
    NoOpRecord: ImageBuilder._no_op,
}
