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

from headrace.core.errors import ApiError, ErrorCode, known_code
from headrace.core.files import Buffer
from headrace.network.errors import BrokerUnreachable, ConnectFailed, ConnectionLost
from headrace.network.send_request import SendRequest, choose_version
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
        schema = send.request.schema
        offered = self._versions.get(-1 if schema.api_key is None else schema.api_key)
        version = choose_version(send, offered, f"the broker at {self.address}")
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

    def receive(self, frame: Buffer) -> tuple[InFlightRequest, Message] | bytes | None:
        """Take one frame: an answered call, bytes to send while opening, or nothing to do."""
        if not self.in_flight:
            raise self._error(f"{self.address} sent an answer that nobody asked for")
        call = self.in_flight.popleft()
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != call.correlation_id:
            raise self._error(
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
        if response.error_code:
            code = known_code(response.error_code)
            raise ApiError(code, f"ApiVersions of {self.address}: {code.name}")
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

    def lost_error(self, reason: object) -> BrokerUnreachable:
        """The error for calls whose connection broke."""
        return self._error(f"the connection to {self.address} was lost: {reason}")

    def greeting_error(self, limit_ms: int) -> BrokerUnreachable:
        """The error for calls whose connection was made and never became ready."""
        return ConnectFailed(
            f"{self.address} did not say what it speaks in {limit_ms} ms; is that a Kafka listener?"
        )

    def _error(self, message: str) -> BrokerUnreachable:
        """Requests are sent once the connection is ready: before that, none can have arrived."""
        if self.phase is ConnectionPhase.READY:
            return ConnectionLost(message)
        return ConnectFailed(message)

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
