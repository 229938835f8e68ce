"""AlterConfigs: replace all configs of a resource."""

from headrace.protocol.fields import array, boolean, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class AlterableConfig(Struct):
    """One config entry."""

    name: str = string()
    value: str | None = string(nullable=True, default=None)


class AlterConfigsResource(Struct):
    """One resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=33, versions=(0, 2), flexible_from=2)
class AlterConfigsRequest(Message):
    """The new configs; keys left out go back to their defaults."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=33, versions=(0, 2), flexible_from=2)
class AlterConfigsResponse(Message):
    """The outcome, per resource."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
