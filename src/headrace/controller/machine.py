"""The metadata machine: every command to its decision, every record into the image."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.controller import brokers, config_changes, topics
from headrace.controller.builder import ImageBuilder
from headrace.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    BumpLeaderEpochs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    RegisterBroker,
    UnfenceBroker,
)
from headrace.controller.decision_context import DecisionContext
from headrace.controller.image import Image
from headrace.controller.records import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
    partition_record,
    register_broker_record,
)
from headrace.machine.interface import Command, Decision, Reply

_DECIDERS: dict[
    type[Command[Any]], Callable[[Image, Any, DecisionContext], Decision[MetadataRecord, Any]]
]
_DECIDERS = {
    AllocateProducerIds: brokers.allocate_producer_ids,
    AlterConfigs: config_changes.alter_configs,
    BumpLeaderEpochs: brokers.bump_leader_epochs,
    CreatePartitions: topics.create_partitions,
    CreateTopics: topics.create_topics,
    DeleteTopics: topics.delete_topics,
    IncrementalAlterConfigs: config_changes.incremental_alter_configs,
    RegisterBroker: brokers.register_broker,
    UnfenceBroker: brokers.unfence_broker,
}


class MetadataMachine:
    """`machine.shape.Machine` over images and metadata records."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context

    def decide(self, state: Image, command: Command[Reply]) -> Decision[MetadataRecord, Reply]:
        return _DECIDERS[type(command)](state, command, self._context)

    def apply(self, state: Image, records: Sequence[MetadataRecord]) -> Image:
        builder = ImageBuilder(state)
        builder.apply(records)
        return builder.freeze()


def bootstrap_records() -> list[MetadataRecord]:
    """What stands at the beginning of a new cluster's log.

    Only features with an effect are finalized: clients change their behaviour by them.
    """
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)]


def snapshot_records(image: Image) -> Iterator[MetadataRecord]:
    """Records that build `image` from nothing, in an order in which each can be applied."""
    # The metadata version leads: Kafka reads the other records in its light.
    for name in sorted(image.features, key=lambda name: name != METADATA_VERSION):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield register_broker_record(broker)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, registration in enumerate(topic.partitions):
            yield partition_record(topic.id, index, registration)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    if image.next_producer_id:
        # Whom the last block went to is not part of the image, and nobody asks.
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
