"""DescribeUserScramCredentials: which SCRAM credentials users have."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class UserName(Struct):
    """One user."""

    name: str = string()


@message(api_key=50, versions=(0, 0), flexible_from=0)
class DescribeUserScramCredentialsRequest(Message):
    """The users; null or none means all."""

    users: list[UserName] | None = array(UserName, nullable=True, default=None)


class CredentialInfo(Struct):
    """One credential."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(api_key=50, versions=(0, 0), flexible_from=0)
class DescribeUserScramCredentialsResponse(Message):
    """Mechanisms and iteration counts, never the secrets."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
