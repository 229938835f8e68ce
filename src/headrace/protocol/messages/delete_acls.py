"""DeleteAcls: remove the access rules that match filters."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class DeleteAclsFilter(Struct):
    """One filter; null matches anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True, default=None)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True, default=None)
    host_filter: str | None = string(nullable=True, default=None)
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=31, versions=(1, 3), flexible_from=2)
class DeleteAclsRequest(Message):
    """The filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """One rule that was removed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """The rules one filter removed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(api_key=31, versions=(1, 3), flexible_from=2)
class DeleteAclsResponse(Message):
    """What each filter removed."""

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
