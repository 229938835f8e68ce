"""What can go wrong on the way to a broker and back.

    HeadraceError
      ClientError                seen by the side that asks, not reported by a broker
        BrokerUnreachable        no connection, or it broke; the text has the address and reason
          ConnectFailed          no connection was made: nothing was sent
          ConnectionLost         it broke with the request on its way: whether it arrived is unknown
        RequestTimedOut          one response took too long
        UnsupportedApi           the broker lacks an API or a version that the call needs
        ClientClosed             used after close()
        FinalError               not to be retried, whatever its code
          BadFrame               the other side does not speak this protocol

Whoever must not send the same thing twice asks for the difference between the two kinds of
`BrokerUnreachable`.
"""

from headrace.core.errors import ErrorCode, HeadraceError


class ClientError(HeadraceError):
    """A failure seen by the side that asks, not reported by a broker."""


class BrokerUnreachable(ClientError):
    """No connection to a broker could be made, or it was lost with requests unanswered."""

    code = ErrorCode.NETWORK_EXCEPTION


class ConnectFailed(BrokerUnreachable):
    """No connection was made, or it never became ready: the request was not sent."""


class ConnectionLost(BrokerUnreachable):
    """The connection broke after the request was sent; whether it took effect is not known."""


class RequestTimedOut(ClientError):
    """No response in time; whether the request took effect is not known."""

    code = ErrorCode.REQUEST_TIMED_OUT


class UnsupportedApi(ClientError):
    """The broker does not offer the API, or none of the versions the call can use."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ClientClosed(ClientError):
    """The connection, client, producer or reader was already closed."""

    def __init__(self, what: str = "client") -> None:
        super().__init__(f"this {what} is closed; open a new one")


class FinalError(ClientError):
    """A failure after which the client has already done all the retrying there was time for."""

    @property
    def retriable(self) -> bool:
        return False


class BadFrame(FinalError):
    """The peer sent a length that no broker sends."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(
            f"received a frame length of {length} bytes (limit {limit}); the other side is no "
            "Kafka listener, or expects TLS: check the address and the security settings"
        )
