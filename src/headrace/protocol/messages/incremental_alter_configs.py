"""IncrementalAlterConfigs: change single configs of a resource."""

from headrace.protocol.fields import array, boolean, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class AlterableConfig(Struct):
    """One change: set, delete, append or subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=True, default=None)


class AlterConfigsResource(Struct):
    """One resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=44, versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsRequest(Message):
    """The changes."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=44, versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsResponse(Message):
    """The outcome, per resource."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
