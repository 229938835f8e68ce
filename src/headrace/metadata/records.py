"""The metadata records the controller writes and reads, and in which version it writes each.

Versions are those of metadata.version 4.3-IV0, as far as their fields are used here; Kafka's
dump tool and a later version of this code read them all.
"""

from uuid import UUID

from headrace.metadata.image import BrokerRegistration, PartitionRegistration
from headrace.protocol.message import Message
from headrace.protocol.schemas.metadata_cluster import (
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from headrace.protocol.schemas.metadata_frame import decode_metadata_record, encode_metadata_record
from headrace.protocol.schemas.metadata_nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.schemas.metadata_topics import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

MetadataRecord = Message
"""Any of the record classes here; what else the schemas know, no image understands yet."""

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30
"""4.3-IV0: the newest level Kafka 4.3 knows."""
METADATA_VERSION_LEVEL_MIN = 7
"""3.3-IV3: the oldest level Kafka 4.3 runs at; told to clients as the lower end."""

_VERSIONS: dict[type[Message], int] = {
    BrokerRegistrationChangeRecord: 2,
    PartitionChangeRecord: 1,
    PartitionRecord: 1,
    RegisterBrokerRecord: 3,
}
_WITH_ELIGIBLE_LEADERS = 2

__all__ = [
    "METADATA_VERSION",
    "METADATA_VERSION_LEVEL",
    "METADATA_VERSION_LEVEL_MIN",
    "BrokerRegistrationChangeRecord",
    "ConfigRecord",
    "FeatureLevelRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "UnregisterBrokerRecord",
    "decode_record",
    "encode_record",
    "partition_record",
    "register_broker_record",
]


def encode_record(record: MetadataRecord) -> bytes:
    """The framed bytes of a record, as they stand in the metadata log."""
    version = _VERSIONS.get(type(record), 0)
    if isinstance(record, (PartitionRecord, PartitionChangeRecord)) and (
        record.eligible_leader_replicas is not None or record.last_known_elr is not None
    ):
        version = _WITH_ELIGIBLE_LEADERS
    return encode_metadata_record(record, version)


def decode_record(data: bytes) -> MetadataRecord:
    return decode_metadata_record(data)[0]


def partition_record(
    topic_id: UUID, index: int, registration: PartitionRegistration
) -> PartitionRecord:
    """The whole of a partition: how it is created, and how a snapshot holds it."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(registration.replicas),
        isr=list(registration.isr),
        removing_replicas=list(registration.removing_replicas),
        adding_replicas=list(registration.adding_replicas),
        leader=registration.leader,
        leader_recovery_state=registration.leader_recovery_state,
        leader_epoch=registration.leader_epoch,
        partition_epoch=registration.partition_epoch,
        directories=list(registration.directories),
        eligible_leader_replicas=list(registration.elr) or None,
        last_known_elr=list(registration.last_known_elr) or None,
    )


def register_broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
    )


def bootstrap_records() -> list[MetadataRecord]:
    """What stands at the beginning of a new cluster's log.

    Only features with an effect are finalized: clients change their behaviour by them.
    """
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)]
