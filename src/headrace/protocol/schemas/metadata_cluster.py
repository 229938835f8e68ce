"""Metadata records about the cluster as a whole: features, producer ids, transactions."""

from headrace.protocol.fields import int8, int16, int32, int64, string
from headrace.protocol.message import Message, message


@message(record_type=12, versions=(0, 0), flexible_from=0)
class FeatureLevelRecord(Message):
    """A feature is set to a level; the first record of every metadata log."""

    name: str = string()
    feature_level: int = int16()


@message(record_type=15, versions=(0, 0), flexible_from=0)
class ProducerIdsRecord(Message):
    """A block of producer ids is given to a broker."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@message(record_type=20, versions=(0, 0), flexible_from=0)
class NoOpRecord(Message):
    """Nothing; keeps the log moving."""


@message(record_type=23, versions=(0, 0), flexible_from=0)
class BeginTransactionRecord(Message):
    """The records that follow take effect together."""

    name: str | None = string(tag=0, nullable=True, default=None)


@message(record_type=24, versions=(0, 0), flexible_from=0)
class EndTransactionRecord(Message):
    """The open metadata transaction takes effect."""


@message(record_type=25, versions=(0, 0), flexible_from=0)
class AbortTransactionRecord(Message):
    """The open metadata transaction never happened."""

    reason: str | None = string(tag=0, nullable=True, default=None)


@message(record_type=21, versions=(0, 0), flexible_from=0)
class ZkMigrationStateRecord(Message):
    """How far a migration from ZooKeeper came; read, never written."""

    zk_migration_state: int = int8()
