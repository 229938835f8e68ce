"""Decisions about brokers: registration, fencing, leader epochs, producer ids."""

from headrace.controller.commands import (
    AllocateProducerIds,
    BumpLeaderEpochs,
    CompleteActivation,
    ProducerIdBlock,
    RegisterBroker,
    UnfenceBroker,
)
from headrace.controller.decision_context import PRODUCER_IDS_PER_BLOCK, DecisionContext
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.machine.interface import Decision
from headrace.metadata.image import NO_LEADER, BrokerRegistration, Image
from headrace.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    bootstrap_records,
    register_broker_record,
)

UNFENCE = -1
"""In a BrokerRegistrationChangeRecord: the broker is no longer fenced."""


def complete_activation(
    image: Image, _command: CompleteActivation, _: DecisionContext
) -> Decision[MetadataRecord, None]:
    return Decision(None, () if image.features else bootstrap_records())


def register_broker(
    image: Image, command: RegisterBroker, _: DecisionContext
) -> Decision[MetadataRecord, int]:
    """A new incarnation replaces the old registration and is fenced until it asks to serve."""
    known = image.brokers.get(command.node_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision(known.epoch)
    registration = BrokerRegistration(
        id=command.node_id,
        # The offset of the record itself, which is decided to be the next one of the log: larger
        # than that of any registration before.
        epoch=image.offset + 1,
        incarnation_id=command.incarnation_id,
        endpoints=command.endpoints,
        features=command.features,
        rack=command.rack,
        directories=command.directories,
    )
    return Decision(registration.epoch, [register_broker_record(registration)])


def unfence_broker(
    image: Image, command: UnfenceBroker, _: DecisionContext
) -> Decision[MetadataRecord, None]:
    broker = _registered(image, command.node_id, command.broker_epoch)
    if not broker.fenced:
        return Decision(None)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE
    )
    return Decision(None, [record])


def bump_leader_epochs(
    image: Image, command: BumpLeaderEpochs, _: DecisionContext
) -> Decision[MetadataRecord, int]:
    """Naming a leader, even the same one, is what starts a new epoch."""
    _registered(image, command.node_id, None)
    records = [
        PartitionChangeRecord(
            topic_id=topic_id, partition_id=partition.partition, leader=command.node_id
        )
        for partition, topic_id, registration in image.partitions()
        if registration.leader == command.node_id
        or (registration.leader == NO_LEADER and command.node_id in registration.isr)
    ]
    return Decision(len(records), records)


def allocate_producer_ids(
    image: Image, command: AllocateProducerIds, _: DecisionContext
) -> Decision[MetadataRecord, ProducerIdBlock]:
    broker = _registered(image, command.node_id, command.broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    return Decision(ProducerIdBlock(first, PRODUCER_IDS_PER_BLOCK), [record])


def _registered(image: Image, node_id: NodeId, epoch: int | None) -> BrokerRegistration:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not registered")
    if epoch is not None and epoch != broker.epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
        )
    return broker
