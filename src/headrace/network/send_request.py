"""A request for one broker, and the version in which it is sent."""

from dataclasses import dataclass

from headrace.core.ids import NodeId
from headrace.network.errors import UnsupportedApi
from headrace.protocol.message import Message

SHARED_CHANNEL = 0


@dataclass(slots=True)
class SendRequest:
    """Send a request to a node and hand back its response.

    `version_min` and `version_max` narrow the negotiated version where a call needs a field
    that older versions lack, or must not use a newer one. Requests of one `channel` share a
    connection and are answered in order; a reader has its own, or everything else would wait
    behind its long polls.
    """

    node: NodeId
    request: Message
    response_class: type[Message]
    timeout_ms: float
    version_min: int = 0
    version_max: int = 1000
    expects_response: bool = True
    channel: int = SHARED_CHANNEL


def choose_version(send: SendRequest, offered: tuple[int, int] | None, broker: str) -> int:
    """The highest version that both sides and the call itself can use.

    `offered` is the lowest and highest that the broker serves, None where it lacks the API.
    """
    schema = send.request.schema
    if offered is None:
        raise UnsupportedApi(f"{broker} does not offer {_api_name(send)}")
    low = max(offered[0], schema.lowest_version, send.version_min)
    high = min(offered[1], schema.highest_version, send.version_max)
    if low > high:
        raise UnsupportedApi(
            f"{broker} offers {_api_name(send)} {offered[0]} to {offered[1]}; this call needs "
            f"one of {max(schema.lowest_version, send.version_min)} to "
            f"{min(schema.highest_version, send.version_max)}"
        )
    return high


def _api_name(send: SendRequest) -> str:
    return type(send.request).__name__.removesuffix("Request")
