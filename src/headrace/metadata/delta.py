"""What differs between two images, so that a publisher need not compare them whole."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.metadata.image import Image
from headrace.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Delta:
    """The names of what is not the same in two images.

    Look the names up in both images: a topic that is only in the new one was created, one only
    in the old one was deleted, one with another id was deleted and created again.
    """

    topics: frozenset[str] = frozenset()
    configs: frozenset[ConfigResource] = frozenset()
    brokers: frozenset[int] = frozenset()
    features: bool = False
    producer_ids: bool = False

    @classmethod
    def between(cls, old: Image, new: Image) -> "Delta":
        """The difference found by comparing the images whole: after a snapshot was loaded, or for
        somebody who has seen neither or only a much older one."""
        return cls._of(
            old,
            new,
            _changed_keys(old.topics, new.topics),
            _changed_keys(old.configs, new.configs),
            _changed_keys(old.brokers, new.brokers),
        )

    @classmethod
    def of_records(cls, records: Iterable[MetadataRecord], old: Image, new: Image) -> "Delta":
        """The same, found by looking only at what `records`, which lead from `old` to `new`,
        touched."""
        ids: set[UUID] = set()
        configs: set[ConfigResource] = set()
        brokers: set[int] = set()
        for record in records:
            if isinstance(
                record, (TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord)
            ):
                ids.add(record.topic_id)
            elif isinstance(record, ConfigRecord):
                configs.add(
                    ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
                )
            elif isinstance(
                record,
                (RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord),
            ):
                brokers.add(record.broker_id)
        # A topic that was created and deleted within the run is in neither image.
        topics = {
            image.topics_by_id[id].name
            for image in (old, new)
            for id in ids
            if id in image.topics_by_id
        }
        # A topic takes its configs with it.
        configs.update(ConfigResource(ConfigResourceType.TOPIC, name) for name in topics)
        return cls._of(
            old,
            new,
            _changed(topics, old.topics, new.topics),
            _changed(configs, old.configs, new.configs),
            _changed(brokers, old.brokers, new.brokers),
        )

    @classmethod
    def _of(
        cls,
        old: Image,
        new: Image,
        topics: frozenset[str],
        configs: frozenset[ConfigResource],
        brokers: frozenset[int],
    ) -> "Delta":
        return cls(
            topics,
            configs,
            brokers,
            features=old.features != new.features,
            producer_ids=old.next_producer_id != new.next_producer_id,
        )


def _changed_keys(old: Mapping[K, V], new: Mapping[K, V]) -> frozenset[K]:
    # Images share maps that did not change.
    return frozenset() if old is new else _changed(old.keys() | new.keys(), old, new)


def _changed(keys: Iterable[K], old: Mapping[K, V], new: Mapping[K, V]) -> frozenset[K]:
    return frozenset(key for key in keys if old.get(key) != new.get(key))
