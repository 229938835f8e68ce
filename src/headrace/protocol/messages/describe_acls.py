"""DescribeAcls: the access rules that match a filter."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=29, versions=(1, 3), flexible_from=2)
class DescribeAclsRequest(Message):
    """The filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True, default=None)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True, default=None)
    host_filter: str | None = string(nullable=True, default=None)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """One rule."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """The rules of one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(api_key=29, versions=(1, 3), flexible_from=2)
class DescribeAclsResponse(Message):
    """The rules, by resource."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
