"""What a run of records touched."""

from collections.abc import Iterable
from uuid import UUID

from headrace.metadata.image import ConfigResource, ConfigResourceType, Delta, Image
from headrace.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def delta_of(records: Iterable[MetadataRecord], old: Image, new: Image) -> Delta:
    """The difference that `records` make between the images before and after them."""
    ids: set[UUID] = set()
    configs: set[ConfigResource] = set()
    brokers: set[int] = set()
    kinds: set[type] = set()
    for record in records:
        kinds.add(type(record))
        if isinstance(
            record, (TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord)
        ):
            ids.add(record.topic_id)
        elif isinstance(record, ConfigRecord):
            configs.add(
                ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
            )
        elif isinstance(
            record, (RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord)
        ):
            brokers.add(record.broker_id)
    # A topic that was created and deleted within the run is in neither image and touched nobody.
    before = {old.topics_by_id[id].name for id in ids if id in old.topics_by_id}
    after = {new.topics_by_id[id].name for id in ids if id in new.topics_by_id}
    for name in before:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        if resource in old.configs and resource not in new.configs:
            configs.add(resource)
    return Delta(
        topics=frozenset(before | after),
        configs=frozenset(configs),
        brokers=frozenset(brokers),
        features=FeatureLevelRecord in kinds,
        producer_ids=ProducerIdsRecord in kinds,
    )
