"""SaslHandshake: choose a SASL mechanism."""

from headrace.protocol.fields import array, int16, string
from headrace.protocol.message import Message, message


@message(api_key=17, versions=(0, 1), flexible_from=None)
class SaslHandshakeRequest(Message):
    """The mechanism wanted."""

    mechanism: str = string()


@message(api_key=17, versions=(0, 1), flexible_from=None)
class SaslHandshakeResponse(Message):
    """Whether it is accepted, and all that are enabled."""

    error_code: int = int16(default=0)
    mechanisms: list[str] = array(string())
