"""DescribeClientQuotas: the quotas of users and clients."""

from headrace.protocol.fields import array, boolean, float64, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class ComponentData(Struct):
    """One condition of the filter."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=True, default=None)


@message(api_key=48, versions=(0, 1), flexible_from=1)
class DescribeClientQuotasRequest(Message):
    """The filter."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """One part of the entity: a user, a client id, an address."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True, default=None)


class ValueData(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(api_key=48, versions=(0, 1), flexible_from=1)
class DescribeClientQuotasResponse(Message):
    """The quotas that match."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    entries: list[EntryData] | None = array(EntryData, nullable=True, default=None)
