"""The metadata machine: every command to its decision, every record into the image."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.controller import brokers, config_changes, topics
from headrace.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    BumpLeaderEpochs,
    CompleteActivation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    RegisterBroker,
    UnfenceBroker,
)
from headrace.controller.decision_context import DecisionContext
from headrace.machine.interface import Command, Decision, Reply
from headrace.metadata.builder import ImageBuilder
from headrace.metadata.image import Image
from headrace.metadata.records import MetadataRecord

_DECIDERS: dict[
    type[Command[Any]], Callable[[Image, Any, DecisionContext], Decision[MetadataRecord, Any]]
]
_DECIDERS = {
    AllocateProducerIds: brokers.allocate_producer_ids,
    AlterConfigs: config_changes.alter_configs,
    BumpLeaderEpochs: brokers.bump_leader_epochs,
    CompleteActivation: brokers.complete_activation,
    CreatePartitions: topics.create_partitions,
    CreateTopics: topics.create_topics,
    DeleteTopics: topics.delete_topics,
    IncrementalAlterConfigs: config_changes.incremental_alter_configs,
    RegisterBroker: brokers.register_broker,
    UnfenceBroker: brokers.unfence_broker,
}


class MetadataMachine:
    """`machine.interface.Machine` over images and metadata records."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context

    def decide(self, state: Image, command: Command[Reply]) -> Decision[MetadataRecord, Reply]:
        return _DECIDERS[type(command)](state, command, self._context)

    def apply(self, state: Image, records: Sequence[MetadataRecord]) -> Image:
        builder = ImageBuilder(state)
        builder.apply(records)
        return builder.freeze()
