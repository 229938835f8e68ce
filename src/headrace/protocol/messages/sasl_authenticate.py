"""SaslAuthenticate: one step of a SASL exchange."""

from headrace.protocol.fields import binary, int16, int64, string
from headrace.protocol.message import Message, message


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateRequest(Message):
    """A token from the client."""

    auth_bytes: bytes = binary()


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateResponse(Message):
    """A token from the server."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(since=1, default=0)
