"""The topics of coordinators are written by coordinators alone."""

from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.metadata.names import COORDINATOR_TOPICS
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


@pytest.mark.parametrize("topic", sorted(COORDINATOR_TOPICS))
@pytest.mark.parametrize(
    ("client_id", "expected"),
    [
        ("anybody", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (None, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__admin_client", ErrorCode.NONE),
    ],
)
async def test_only_kafkas_tools_may_write_there(
    tmp_path: Path, topic: str, client_id: str | None, expected: ErrorCode
) -> None:
    batch = bytes(encode_batch([Record(0, 1_000, b"k", b"v", ())]))
    data = [PartitionProduceData(index=0, records=batch)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
    async with running_node(tmp_path) as node:
        controller = node.controller
        assert controller is not None
        await controller.submit(CreateTopics((TopicToCreate(topic, 1, 1),)))
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            for number in range(4):  # often enough for a short way, if there were one
                client.send_bytes(encode_request(request, 9, number, client_id))
                _, response = decode_response(ProduceResponse, await client.receive_frame(), 9)
                [answer] = response.responses[0].partition_responses
                assert answer.error_code == expected
