"""From a frame to its handler: what a client may send without losing its connection."""

from pathlib import Path

from headrace.broker.long_requests import ITEMS_AT_ONCE
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
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


async def test_a_request_sees_the_effect_of_the_one_before_it(tmp_path: Path) -> None:
    # In one piece, as clients send that do not wait; the second alone would create the topic.
    topic = CreatableTopic(
        name="t", num_partitions=7, replication_factor=1, assignments=[], configs=[]
    )
    creation = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    question = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    async with running_node(tmp_path) as node:
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as client:
            client.send_bytes(
                encode_request(creation, 5, 1, "t")
                + encode_request(question, 8, 2, "t")
                + encode_request(question, 8, 3, "t")
            )
            _, created = await client.receive(CreateTopicsResponse, 5)
            answers = [await client.receive(MetadataResponse, 8) for _ in range(2)]
    assert created.topics[0].error_code == 0
    assert [correlation_id for correlation_id, _ in answers] == [2, 3]
    assert [len(answer.topics[0].partitions) for _, answer in answers] == [7, 7]


async def test_a_request_sees_the_effect_of_a_long_one_before_it(tmp_path: Path) -> None:
    # The long one is held up twice, to be decoded and to be served: neither end lets others pass.
    names = [*(f"in/valid-{number}" for number in range(2 * ITEMS_AT_ONCE)), "t"]
    topics = [
        CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    creation = CreateTopicsRequest(topics=topics, timeout_ms=1000)
    question = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    async with running_node(tmp_path, num_partitions="1") as node:
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as client:
            client.send_bytes(
                encode_request(creation, 5, 1, "t") + encode_request(question, 8, 2, "t")
            )
            await client.receive(CreateTopicsResponse, 5)
            _, answer = await client.receive(MetadataResponse, 8)
    assert len(answer.topics[0].partitions) == 2
