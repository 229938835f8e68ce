"""Which brokers a client is shown, and under which address: the same in every response."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration
from headrace.node.node import Node
from headrace.protocol.message import Message
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient
from tests.unit.broker.test_produce_fast_path import OTHER, new_topic, resign

FENCED = NodeId(7)


def broker(id: NodeId, host: str, *, fenced: bool) -> BrokerRegistration:
    endpoint = BrokerEndpoint("PLAINTEXT", host, 9092)
    return BrokerRegistration(id, 1, UUID(int=id), (endpoint,), {}, fenced=fenced)


def know(node: Node, *brokers: BrokerRegistration) -> None:
    image = node.services.metadata.image
    added: dict[int, BrokerRegistration] = {each.id: each for each in brokers}
    node.services.metadata.image = replace(image, brokers={**image.brokers, **added})


def shown(response: Message) -> list[tuple[int, str]]:
    if isinstance(response, MetadataResponse):
        return [(each.node_id, each.host) for each in response.brokers]
    assert isinstance(response, DescribeClusterResponse)
    return [(each.broker_id, each.host) for each in response.brokers]


async def test_fenced_brokers_are_shown_to_whoever_asks_for_them(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        know(
            node,
            broker(FENCED, "fenced", fenced=True),
            broker(OTHER, "0.0.0.0", fenced=False),
        )
        alive = [(0, "127.0.0.1"), (OTHER, "127.0.0.1")]
        assert shown(await client.call(MetadataRequest(topics=[]), 9)) == alive
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert shown(await client.call(request, 2)) == alive
        request.include_fenced_brokers = True
        assert sorted(shown(await client.call(request, 2))) == [
            (0, "127.0.0.1"),
            (FENCED, "fenced"),
            (OTHER, "127.0.0.1"),
        ]


async def test_of_what_is_not_there_a_client_hears_whether_it_could_be(tmp_path: Path) -> None:
    names = ["nowhere", "no/where"]
    asked: tuple[tuple[Message, int], ...] = (
        (
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
            ),
            9,
        ),
        (
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names], cursor=None
            ),
            0,
        ),
    )
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        for request, version in asked:
            response: Any = await client.call(request, version)
            assert {topic.name: topic.error_code for topic in response.topics} == {
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "no/where": ErrorCode.INVALID_TOPIC_EXCEPTION,
            }


@pytest.mark.parametrize(
    ("host", "fenced", "named"),
    [
        ("elsewhere", False, [(OTHER, "elsewhere")]),
        ("0.0.0.0", False, [(OTHER, "127.0.0.1")]),
        ("elsewhere", True, []),
    ],
)
async def test_a_leader_is_named_as_metadata_would_name_it(
    tmp_path: Path, host: str, fenced: bool, named: list[tuple[int, str]]
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        topic_id = await new_topic(node)
        resign(node)
        know(node, broker(OTHER, host, fenced=fenced))
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic_id=topic_id, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
        response = await client.call(request, 16)
        assert isinstance(response, FetchResponse)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == named
