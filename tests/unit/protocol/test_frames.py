"""Headers before the message: which form, and what happens when they are broken."""

from __future__ import annotations

import pytest

from headrace.core.errors import MalformedMessage
from headrace.protocol.frames import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_parts,
    encode_response,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_a_plain_request_has_header_v1() -> None:
    frame = encode_request(HEARTBEAT, 3, 77, "me")
    assert frame[:16] == bytes.fromhex("00000018 000c 0003 0000004d 0002 6d65")
    assert decode_request_header(frame[4:]) == RequestHeader(12, 3, 77, "me", 12)
    assert HeartbeatRequest.decode(frame[4:], 3, 12) == HEARTBEAT


def test_a_flexible_request_has_tagged_fields_after_the_client_id() -> None:
    frame = encode_request(HEARTBEAT, 4, 77, "me")
    assert frame[16:17] == b"\0"
    assert decode_request_header(frame[4:]).body_position == 13


def test_unknown_tags_in_a_request_header_are_skipped() -> None:
    header = bytes.fromhex("000c 0004 0000004d 0002 6d65 01 05 03 010203")
    assert decode_request_header(header + HEARTBEAT.encode(4)).body_position == len(header)


def test_a_request_may_come_without_client_id() -> None:
    frame = encode_request(HEARTBEAT, 3, -1, None)
    assert decode_request_header(frame[4:]) == RequestHeader(12, 3, -1, None, 10)


def test_the_header_of_an_unknown_api_is_read_as_far_as_it_is_certain() -> None:
    data = bytes.fromhex("7fff 0063 00000001 0001 61 beef")
    assert decode_request_header(data) == RequestHeader(32767, 99, 1, "a", 11)


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "000c 0003 0000",
        "000c 0003 0000004d 0005 6d65",
        "000c 0003 0000004d fffe",
        "000c 0003 0000004d 0001 ff",
        "000c 0004 0000004d 0000",
        "000c 0004 0000004d 0000 01 00 09 00",
        "000c 0004 0000004d 0000 ffffffffff",
    ],
)
def test_a_broken_request_header_is_malformed(broken: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_request_header(bytes.fromhex(broken))


def test_a_flexible_response_has_header_v1() -> None:
    plain = encode_response(HeartbeatResponse(error_code=27), 3, 5)
    assert plain == bytes.fromhex("0000000a 00000005 00000000 001b")
    flexible = encode_response(HeartbeatResponse(error_code=27), 4, 5)
    assert flexible == bytes.fromhex("0000000c 00000005 00 00000000 001b 00")
    assert decode_response(HeartbeatResponse, flexible[4:], 4) == (
        5,
        HeartbeatResponse(error_code=27),
    )


@pytest.mark.parametrize("version", range(5))
def test_the_response_header_of_api_versions_is_always_v0(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[])
    frame = encode_response(response, version, 9)
    assert frame[4:] == bytes.fromhex("00000009") + response.encode(version)
    assert decode_response(ApiVersionsResponse, frame[4:], version) == (9, response)


def test_an_api_versions_request_from_the_future_still_has_a_readable_header() -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    frame = bytearray(encode_request(request, 4, 3, "me")[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    assert decode_request_header(frame) == RequestHeader(18, 99, 3, "me", 13)


def test_the_length_of_a_request_in_parts_counts_them_all() -> None:
    records = bytes(5000)
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    parts = encode_request_parts(request, 9, 1, "me")
    assert any(part is records for part in parts)
    whole = b"".join(parts)
    assert whole == encode_request(request, 9, 1, "me")
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4


@pytest.mark.parametrize("broken", ["", "000000", "00000005 01", "00000005 01 00 05"])
def test_a_broken_response_header_is_malformed(broken: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_response(HeartbeatResponse, bytes.fromhex(broken), 4)
