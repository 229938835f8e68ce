"""CreateAcls: add access rules."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class AclCreation(Struct):
    """One rule to add."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=30, versions=(1, 3), flexible_from=2)
class CreateAclsRequest(Message):
    """Rules to add."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """The outcome for one rule."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


@message(api_key=30, versions=(1, 3), flexible_from=2)
class CreateAclsResponse(Message):
    """The outcome, in the order asked."""

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)
