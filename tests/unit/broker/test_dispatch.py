"""From a frame to its handler: what a client may send without losing its connection."""

from pathlib import Path

from headrace.protocol.frames import encode_request
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


async def test_bytes_behind_a_request_are_ignored(tmp_path: Path) -> None:
    # librdkafka leaves a few behind a Metadata request for all topics; Kafka does not look.
    request = encode_request(MetadataRequest(topics=None), 13, 1, "stray")
    stray = b"\x01\x00\x00"
    frame = (len(request) - 4 + len(stray)).to_bytes(4, "big") + request[4:] + stray
    async with running_node(tmp_path) as node:
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as client:
            client.send_bytes(frame)
            correlation_id, answer = await client.receive(MetadataResponse, 13)
    assert (correlation_id, answer.error_code) == (1, 0)
