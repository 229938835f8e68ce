"""One connection without its socket: requests become bytes, frames become answers.

    OPENING --ApiVersions answered--> READY --fail()--> CLOSED
       |  ^
       +--+ the broker refused our ApiVersions version: asked again with version 0

Brokers answer a connection's requests in order, so what is in flight is a queue; an answer that
is not for its head means that the two sides have lost step, and the connection is useless.
"""

from collections import deque
from enum import Enum, auto
from typing import Any

from headrace.client.core.errors import (
    BrokerUnreachable,
    ClientError,
    UnsupportedApi,
    raise_for,
)
from headrace.client.core.operations import SendRequest
from headrace.core.errors import ErrorCode
from headrace.core.files import Buffer
from headrace.protocol.frames import decode_response, encode_request, encode_request_parts
from headrace.protocol.message import Message
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME = "headrace"
_CORRELATION_MASK = 0x7FFFFFFF
_NO_TIMEOUT = float("inf")


class ConnectionPhase(Enum):
    OPENING = auto()
    READY = auto()
    CLOSED = auto()


class InFlightRequest:
    """A request on the wire; `waiter` is whatever the face uses to wait for the answer."""

    __slots__ = ("correlation_id", "deadline_ms", "response_class", "version", "waiter")

    def __init__(
        self,
        correlation_id: int,
        version: int,
        response_class: type[Message],
        deadline_ms: float,
        waiter: Any,
    ) -> None:
        self.correlation_id = correlation_id
        self.version = version
        self.response_class = response_class
        self.deadline_ms = deadline_ms
        self.waiter = waiter


class ConnectionState:
    """The state machine of one connection."""

    def __init__(self, address: str, client_id: str, software_version: str) -> None:
        self.address = address
        self.phase = ConnectionPhase.OPENING
        self.in_flight: deque[InFlightRequest] = deque()
        self._client_id = client_id
        self._software_version = software_version
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    def api_versions_request(self) -> bytes:
        """The first bytes to send on a new connection: what do you speak?"""
        return self._api_versions_request(ApiVersionsRequest.schema.highest_version)

    def _api_versions_request(self, version: int) -> bytes:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=self._software_version
        )
        call = self._add_in_flight(version, ApiVersionsResponse, _NO_TIMEOUT, None)
        return encode_request(request, version, call.correlation_id, self._client_id)

    def send(self, send: SendRequest, deadline_ms: float, waiter: Any) -> list[Buffer]:
        """The bytes of a request in parts; its call joins the queue unless no answer will come."""
        version = self.choose_version(send)
        if send.expects_response:
            call = self._add_in_flight(version, send.response_class, deadline_ms, waiter)
            correlation_id = call.correlation_id
        else:
            correlation_id = self._next_correlation_id()
        try:
            return encode_request_parts(send.request, version, correlation_id, self._client_id)
        except Exception:
            if send.expects_response:
                self.in_flight.pop()
            raise

    def choose_version(self, send: SendRequest) -> int:
        """The highest version that both sides and the call itself can use."""
        schema = send.request.schema
        name = type(send.request).__name__.removesuffix("Request")
        versions = self._versions.get(schema.api_key if schema.api_key is not None else -1)
        if versions is None:
            raise UnsupportedApi(f"the broker at {self.address} does not offer {name}")
        low = max(versions[0], schema.lowest_version, send.version_min)
        high = min(versions[1], schema.highest_version, send.version_max)
        if low > high:
            raise UnsupportedApi(
                f"the broker at {self.address} offers {name} {versions[0]} to {versions[1]}; "
                f"this call needs one of {max(schema.lowest_version, send.version_min)} to "
                f"{min(schema.highest_version, send.version_max)}"
            )
        return high

    def receive(self, frame: Buffer) -> tuple[InFlightRequest, Message] | bytes | None:
        """Take one frame: an answered call, bytes to send while opening, or nothing to do."""
        if not self.in_flight:
            raise BrokerUnreachable(f"{self.address} sent an answer that nobody asked for")
        call = self.in_flight.popleft()
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != call.correlation_id:
            raise BrokerUnreachable(
                f"{self.address} answered request {correlation_id}, not {call.correlation_id}"
            )
        if self.phase is ConnectionPhase.OPENING:
            return self._api_versions_received(call, frame)
        _, response = decode_response(call.response_class, frame, call.version)
        return call, response

    def _api_versions_received(self, call: InFlightRequest, frame: Buffer) -> bytes | None:
        refused = int.from_bytes(frame[4:6], "big", signed=True)
        if refused == ErrorCode.UNSUPPORTED_VERSION and call.version > 0:
            # A refusal is always written in version 0, whatever was asked.
            return self._api_versions_request(0)
        _, response = decode_response(ApiVersionsResponse, frame, call.version)
        raise_for(response.error_code, None, f"ApiVersions of {self.address}")
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }
        self.phase = ConnectionPhase.READY
        return None

    def fail(self) -> list[InFlightRequest]:
        """The connection is gone; returns the calls that will never be answered."""
        self.phase = ConnectionPhase.CLOSED
        lost = [call for call in self.in_flight if call.waiter is not None]
        self.in_flight.clear()
        return lost

    def lost_error(self, reason: object) -> ClientError:
        """The error for calls whose connection broke."""
        return BrokerUnreachable(f"the connection to {self.address} was lost: {reason}")

    def next_deadline_ms(self) -> float | None:
        """When the oldest unanswered call is late; None when nothing is in flight."""
        return self.in_flight[0].deadline_ms if self.in_flight else None

    def _add_in_flight(
        self, version: int, response_class: type[Message], deadline_ms: float, waiter: Any
    ) -> InFlightRequest:
        call = InFlightRequest(
            self._next_correlation_id(), version, response_class, deadline_ms, waiter
        )
        self.in_flight.append(call)
        return call

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        return self._correlation_id
