"""Metadata records about brokers and controllers: registered, fenced, gone."""

from uuid import UUID

from headrace.protocol.fields import array, boolean, int8, int16, int32, int64, string, uint16, uuid
from headrace.protocol.message import Message, Struct, message


class BrokerEndpoint(Struct):
    """Where the broker listens."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    """A range of a feature the broker supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(record_type=0, versions=(0, 4), flexible_from=0)
class RegisterBrokerRecord(Message):
    """A broker announces itself with a new epoch."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2, default=False)
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable=True, default=None)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1, default=False)
    log_dirs: list[UUID] = array(uuid(), since=3, tag=0, default=())
    cordoned_log_dirs: list[UUID] | None = array(
        uuid(), since=4, tag=1, nullable=True, default=None
    )


@message(record_type=1, versions=(0, 0), flexible_from=0)
class UnregisterBrokerRecord(Message):
    """A broker is removed for good."""

    broker_id: int = int32()
    broker_epoch: int = int64()


@message(record_type=7, versions=(0, 0), flexible_from=0)
class FenceBrokerRecord(Message):
    """A broker may not lead for now."""

    id: int = int32()
    epoch: int = int64()


@message(record_type=8, versions=(0, 0), flexible_from=0)
class UnfenceBrokerRecord(Message):
    """A broker may lead again."""

    id: int = int32()
    epoch: int = int64()


@message(record_type=17, versions=(0, 3), flexible_from=0)
class BrokerRegistrationChangeRecord(Message):
    """A broker is fenced, unfenced or shutting down; its directories changed."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0, default=0)
    in_controlled_shutdown: int = int8(since=1, tag=1, default=0)
    log_dirs: list[UUID] = array(uuid(), since=2, tag=2, default=())
    cordoned_log_dirs: list[UUID] | None = array(
        uuid(), since=3, tag=3, nullable=True, default=None
    )


class ControllerEndpoint(Struct):
    """Where the controller listens."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    """A range of a feature the controller supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(record_type=27, versions=(0, 0), flexible_from=0)
class RegisterControllerRecord(Message):
    """A controller announces itself."""

    controller_id: int = int32()
    incarnation_id: UUID = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)
