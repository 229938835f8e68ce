"""AlterClientQuotas: set or remove quotas of users and clients."""

from headrace.protocol.fields import array, boolean, float64, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class AlterQuotaEntity(Struct):
    """One part of the entity: a user, a client id, an address."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True, default=None)


class OpData(Struct):
    """One quota to set or remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterQuotaEntry(Struct):
    """The changes for one entity."""

    entity: list[AlterQuotaEntity] = array(AlterQuotaEntity)
    ops: list[OpData] = array(OpData)


@message(api_key=49, versions=(0, 1), flexible_from=1)
class AlterClientQuotasRequest(Message):
    """The changes, or only a check of them."""

    entries: list[AlterQuotaEntry] = array(AlterQuotaEntry)
    validate_only: bool = boolean()


class AlterQuotaEntityResult(Struct):
    """One part of the entity, repeated from the request."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True, default=None)


class AlterQuotaEntryResult(Struct):
    """The outcome for one entity."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    entity: list[AlterQuotaEntityResult] = array(AlterQuotaEntityResult)


@message(api_key=49, versions=(0, 1), flexible_from=1)
class AlterClientQuotasResponse(Message):
    """The outcome, per entity."""

    throttle_time_ms: int = int32(default=0)
    entries: list[AlterQuotaEntryResult] = array(AlterQuotaEntryResult)
