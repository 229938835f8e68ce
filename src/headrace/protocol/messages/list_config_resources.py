"""ListConfigResources: the names of resources that have configs."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=74, versions=(0, 1), flexible_from=0)
class ListConfigResourcesRequest(Message):
    """Resource types; none means all that are supported."""

    resource_types: list[int] = array(int8(), since=1, default=())


class ConfigResource(Struct):
    """One resource."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


@message(api_key=74, versions=(0, 1), flexible_from=0)
class ListConfigResourcesResponse(Message):
    """The resources."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    config_resources: list[ConfigResource] = array(ConfigResource)
