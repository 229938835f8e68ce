"""A connection over a socket and one within the process obey the same rules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.broker.in_process import in_process_client
from headrace.broker.long_requests import ITEMS_AT_ONCE, ITEMS_MAX
from headrace.broker.processor import DECODED_BYTES_MAX
from headrace.client import AsyncClient, ClientSettings, UnsupportedApi
from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID, NodeId
from headrace.network.errors import ConnectionLost
from headrace.network.send_request import SendRequest
from headrace.node.node import Node
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.security.authorizer import AclOperation, Action, Authorizer, ResourceType
from tests.support.nodes import running_node

NODE = NodeId(0)
FORMS = ("socket", "in-process")


@asynccontextmanager
async def client_of(form: str, node: Node) -> AsyncIterator[AsyncClient]:
    host, port = node.addresses["PLAINTEXT"]
    client = (
        AsyncClient(ClientSettings(f"{host}:{port}"))
        if form == "socket"
        else in_process_client(node.processor, name="test", listener="PLAINTEXT")
    )
    async with client:
        await client.connect()
        yield client


@asynccontextmanager
async def node_of(directory: Path, authorizer: Authorizer | None = None) -> AsyncIterator[Node]:
    async with running_node(
        directory, authorizer, auto_create_topics_enable="false", log_flush_policy="os"
    ) as node:
        yield node


def ask(request: Message, response_class: type[Message], version_max: int = 1000) -> SendRequest:
    return SendRequest(NODE, request, response_class, 20_000, version_max=version_max)


def creation(name: str) -> SendRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse)


def deletion(name: str) -> SendRequest:
    topics = [DeleteTopicState(name=name, topic_id=NO_TOPIC_ID)]
    return ask(DeleteTopicsRequest(topics=topics, timeout_ms=5_000), DeleteTopicsResponse)


def metadata(*names: str) -> SendRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return ask(MetadataRequest(topics=topics), MetadataResponse)


@pytest.mark.parametrize("form", FORMS)
async def test_of_two_requests_on_one_connection_the_second_sees_the_first(
    tmp_path: Path, form: str
) -> None:
    async with node_of(tmp_path) as node, client_of(form, node) as client:
        sent = [creation("t"), metadata("t"), deletion("t"), metadata("t"), creation("t")]
        futures = [client.requests.submit(each) for each in [*sent, metadata("t")]]
        _, there, _, gone, _, again = [await future for future in futures]
        found = []
        for response in (there, gone, again):
            assert isinstance(response, MetadataResponse)
            found.append(response.topics[0].error_code)
        assert found == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


class OnlyDescribe:
    """Nothing may be changed, and nothing be known of groups."""

    def allows(self, action: Action) -> bool:
        return (
            action.operation is AclOperation.DESCRIBE
            and action.resource_type is not ResourceType.GROUP
        )


REFUSED = {
    "a topic": creation("t"),
    "a name": metadata("no such", "t"),
    "an offset": ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        OffsetFetchResponse,
    ),
    "a group": ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse),
    "a producer": ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000),
        InitProducerIdResponse,
    ),
    "a follower": ask(
        FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=0, topics=[]), FetchResponse, 11
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_refusals_are_the_same(tmp_path: Path, what: str) -> None:
    async with node_of(tmp_path, OnlyDescribe()) as node:
        responses = []
        for form in FORMS:
            async with client_of(form, node) as client:
                responses.append(await client.requests.submit(REFUSED[what]))
    assert responses[0] is not None
    assert responses[0] == responses[1]


def produce(partitions: int) -> SendRequest:
    data = [PartitionProduceData(index=index, records=b"") for index in range(partitions)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
    return ask(request, ProduceResponse, 12)


def fetch(partitions: int) -> SendRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(partitions)
    ]
    topics = [FetchTopic(topic="t", partitions=wanted)]
    return ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), FetchResponse, 12)


LONG = {
    "metadata": metadata(*(f"t-{number}" for number in range(ITEMS_AT_ONCE + 1))),
    "produce": produce(ITEMS_AT_ONCE + 1),
    "fetch": fetch(ITEMS_AT_ONCE + 1),
}


@pytest.mark.parametrize("what", LONG)
async def test_long_requests_are_answered_the_same(tmp_path: Path, what: str) -> None:
    async with node_of(tmp_path) as node:
        responses = []
        for form in FORMS:
            async with client_of(form, node) as client:
                responses.append(await client.requests.submit(LONG[what]))
    assert responses[0] is not None
    assert responses[0] == responses[1]


class Faulty:
    def allows(self, action: Action) -> bool:
        if action.resource_type is ResourceType.GROUP:
            raise RuntimeError("a mistake of ours")
        return True


TOO_LARGE = {
    "bytes": metadata(*("x" * 30_000 for _ in range(DECODED_BYTES_MAX // 30_000 + 1))),
    "items": metadata(*(f"t-{number}" for number in range(ITEMS_MAX + 1))),
    "partitions of a produce": produce(ITEMS_MAX + 1),
    "partitions of a fetch": fetch(ITEMS_MAX + 1),
    "a fault": REFUSED["an offset"],
}


@pytest.mark.parametrize("what", TOO_LARGE)
@pytest.mark.parametrize("form", FORMS)
async def test_what_cannot_be_answered_is_a_lost_request(
    tmp_path: Path, form: str, what: str
) -> None:
    async with node_of(tmp_path, Faulty()) as node, client_of(form, node) as client:
        with pytest.raises(ConnectionLost):
            await client.requests.submit(TOO_LARGE[what])
        # The next one is served, on this connection or another one.
        assert await client.admin.list_topics() == []


@pytest.mark.parametrize("form", FORMS)
async def test_an_unknown_api_and_version_are_the_callers_error(tmp_path: Path, form: str) -> None:
    async with node_of(tmp_path) as node, client_of(form, node) as client:
        for send in (
            ask(WriteTxnMarkersRequest(markers=[]), WriteTxnMarkersResponse),
            SendRequest(NODE, MetadataRequest(topics=[]), MetadataResponse, 1_000, version_min=99),
        ):
            with pytest.raises(UnsupportedApi):
                await client.requests.submit(send)
