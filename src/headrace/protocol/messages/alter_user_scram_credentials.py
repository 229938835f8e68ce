"""AlterUserScramCredentials: set or remove SCRAM credentials."""

from headrace.protocol.fields import array, binary, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class ScramCredentialDeletion(Struct):
    """One credential to remove."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """One credential to set."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


@message(api_key=51, versions=(0, 0), flexible_from=0)
class AlterUserScramCredentialsRequest(Message):
    """The changes."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """The outcome for one user."""

    user: str = string()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


@message(api_key=51, versions=(0, 0), flexible_from=0)
class AlterUserScramCredentialsResponse(Message):
    """The outcome, per user."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
