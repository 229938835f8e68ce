"""One connection's state machine."""

import pytest

from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId
from headrace.network.connection_state import ConnectionPhase, ConnectionState
from headrace.network.errors import (
    BrokerUnreachable,
    ConnectFailed,
    ConnectionLost,
    UnsupportedApi,
)
from headrace.network.send_request import SendRequest
from headrace.protocol.frames import decode_request_header, encode_response
from headrace.protocol.message import Message
from headrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA = 3


def reply(message: Message, version: int, correlation_id: int) -> bytes:
    return encode_response(message, version, correlation_id)[4:]


def offers(*apis: tuple[int, int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in apis]
    )


def make_ready(*apis: tuple[int, int, int]) -> ConnectionState:
    wire = ConnectionState("broker:1", "me", "1.0")
    header = decode_request_header(wire.api_versions_request()[4:])
    wire.receive(reply(offers(*apis), header.api_version, header.correlation_id))
    assert wire.phase is ConnectionPhase.READY
    return wire


def ask(**narrow: int) -> SendRequest:
    return SendRequest(
        NodeId(0),
        MetadataRequest(topics=[]),
        MetadataResponse,
        100,
        narrow.get("version_min", 0),
        narrow.get("version_max", 1000),
    )


def send(wire: ConnectionState, question: SendRequest, waiter: object) -> tuple[int, int]:
    """Send and return (version, correlation id) as the broker would see them."""
    header = decode_request_header(b"".join(wire.send(question, 0.0, waiter))[4:])
    return header.api_version, header.correlation_id


EMPTY = MetadataResponse(brokers=[], topics=[])


def test_the_first_request_names_the_client() -> None:
    hello = ConnectionState("broker:1", "me", "1.0").api_versions_request()
    header = decode_request_header(hello[4:])
    request = ApiVersionsRequest.decode(hello[4:], header.api_version, header.body_position)
    assert header.client_id == "me"
    assert (request.client_software_name, request.client_software_version) == ("headrace", "1.0")


def test_a_broker_that_knows_only_old_versions_is_asked_again() -> None:
    wire = ConnectionState("broker:1", "me", "1.0")
    header = decode_request_header(wire.api_versions_request()[4:])
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    again = wire.receive(reply(refusal, 0, header.correlation_id))
    assert isinstance(again, bytes)
    header = decode_request_header(again[4:])
    assert header.api_version == 0
    wire.receive(reply(offers((METADATA, 0, 2)), 0, header.correlation_id))
    assert wire.phase is ConnectionPhase.READY
    assert send(wire, ask(), object())[0] == 2


def test_the_highest_common_version_is_used() -> None:
    assert send(make_ready((METADATA, 0, 100)), ask(), object())[0] == 13
    assert send(make_ready((METADATA, 0, 9)), ask(), object())[0] == 9
    assert send(make_ready((METADATA, 0, 9)), ask(version_max=5), object())[0] == 5


def test_a_call_that_needs_more_than_the_broker_has_fails_before_anything_is_sent() -> None:
    wire = make_ready((METADATA, 0, 9))
    with pytest.raises(UnsupportedApi, match="offers Metadata 0 to 9"):
        wire.send(ask(version_min=10), 0.0, object())
    with pytest.raises(UnsupportedApi, match="does not offer Metadata"):
        make_ready().send(ask(), 0.0, object())
    assert not wire.in_flight


def test_answers_go_to_their_callers_in_order() -> None:
    wire = make_ready((METADATA, 0, 9))
    first, second = object(), object()
    version, first_id = send(wire, ask(), first)
    _, second_id = send(wire, ask(), second)
    answered = wire.receive(reply(EMPTY, version, first_id))
    assert isinstance(answered, tuple)
    assert answered[0].waiter is first
    answered = wire.receive(reply(EMPTY, version, second_id))
    assert isinstance(answered, tuple)
    assert answered[0].waiter is second


def test_an_answer_out_of_turn_breaks_the_connection() -> None:
    wire = make_ready((METADATA, 0, 9))
    send(wire, ask(), object())
    version, second_id = send(wire, ask(), object())
    with pytest.raises(BrokerUnreachable, match="answered request"):
        wire.receive(reply(EMPTY, version, second_id))


def test_an_answer_that_nobody_asked_for_breaks_the_connection() -> None:
    with pytest.raises(BrokerUnreachable, match="nobody asked"):
        make_ready().receive(reply(EMPTY, 9, 1))


def test_before_it_is_ready_a_broken_connection_has_sent_nothing() -> None:
    opening = ConnectionState("broker:1", "me", "1.0")
    opening.api_versions_request()
    assert type(opening.lost_error("gone")) is ConnectFailed
    with pytest.raises(ConnectFailed):
        opening.receive(reply(offers(), 0, 99))


def test_once_it_is_ready_nobody_knows_what_a_broken_connection_has_sent() -> None:
    wire = make_ready((METADATA, 0, 9))
    assert type(wire.lost_error("gone")) is ConnectionLost
    version, sent_id = send(wire, ask(), object())
    with pytest.raises(ConnectionLost):
        wire.receive(reply(EMPTY, version, sent_id + 1))


def test_everyone_waiting_is_named_when_the_connection_fails() -> None:
    wire = make_ready((METADATA, 0, 9))
    waiter = object()
    send(wire, ask(), waiter)
    assert [call.waiter for call in wire.fail()] == [waiter]
    assert wire.phase is ConnectionPhase.CLOSED
    assert wire.fail() == []


def test_the_oldest_request_decides_when_the_broker_is_late() -> None:
    wire = make_ready((METADATA, 0, 9))
    assert wire.next_deadline_ms() is None
    wire.send(ask(), 50.0, object())
    wire.send(ask(), 20.0, object())
    assert wire.next_deadline_ms() == 50.0
