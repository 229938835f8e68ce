"""The way into the handlers of this process: the same rules as over a socket, without one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headrace.broker import time_slice
from headrace.broker.in_process import in_process_client
from headrace.client import (
    EARLIEST,
    AsyncClient,
    BrokerUnreachable,
    ClientClosed,
    NewTopic,
    ProducerSettings,
    RequestTimedOut,
    TopicPartition,
    UnsupportedApi,
)
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
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
from headrace.protocol.records.encode import BatchBuilder
from headrace.security.authorizer import AclOperation, Action, ResourceType
from headrace.security.principal import Principal
from tests.support.nodes import running_node

NODE = NodeId(0)
ADA, BOB = Principal("User", "ada"), Principal("User", "bob")


@asynccontextmanager
async def client_of(directory: Path) -> AsyncIterator[AsyncClient]:
    async with (
        running_node(directory, log_flush_policy="os") as node,
        in_process_client(node.processor, name="test", listener="PLAINTEXT") as client,
    ):
        await client.connect()
        yield client


def batch() -> bytearray:
    builder = BatchBuilder()
    builder.append(None, b"v", (), 1)
    return builder.build()


def fetch(topic_id: UUID, wait_ms: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic_id=topic_id, partitions=[part])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[topic])


async def waiting_fetch(client: AsyncClient, channel: int) -> "asyncio.Future[Message | None]":
    ids = await client.admin.create_topics([NewTopic("orders", 1)])
    ask = SendRequest(NODE, fetch(ids["orders"], 60_000), FetchResponse, 90_000, channel=channel)
    answer = client.requests.submit(ask)
    await asyncio.sleep(0)
    assert not answer.done()
    return answer


async def test_producer_reader_and_admin_work_as_over_a_socket(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        await client.admin.create_topics([NewTopic("orders", 2)])
        async with client.producer(ProducerSettings(linger_ms=0)) as producer:
            sent = [await producer.send("orders", b"%d" % n, partition=n % 2) for n in range(10)]
            assert [(await each).offset for each in sent] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        async with client.reader({TopicPartition("orders", 1): EARLIEST}) as reader:
            found = await reader.poll(5_000)
        assert [r.value for r in found[TopicPartition("orders", 1)]] == [
            b"1",
            b"3",
            b"5",
            b"7",
            b"9",
        ]
        assert [topic.name for topic in await client.admin.list_topics()] == ["orders"]
        await client.admin.delete_topics(["orders"])


async def test_each_listener_asks_the_authorizer_in_its_own_name(tmp_path: Path) -> None:
    asked: list[Action] = []

    class OnlyAda:
        def allows(self, action: Action) -> bool:
            asked.append(action)
            return action.operation is not AclOperation.WRITE or action.principal == ADA

    async with running_node(tmp_path, OnlyAda(), log_flush_policy="os") as node:
        for principal, allowed in ((ADA, True), (BOB, False)):
            client = in_process_client(
                node.processor,
                name="text",
                listener="PLAINTEXT",
                principal=principal,
                client_host="/10.0.0.7",
            )
            async with client, client.producer() as producer:
                if allowed:
                    await client.admin.create_topics([NewTopic("orders", 1)])
                    await (await producer.send("orders", b"v"))
                else:
                    with pytest.raises(ApiError) as refused:
                        await (await producer.send("orders", b"v"))
                    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {action.host for action in asked} == {"/10.0.0.7"}


async def test_a_batch_that_was_handed_over_stays_the_senders(tmp_path: Path) -> None:
    """The log writes offsets into batches; a client that sends one again must not see them."""
    async with client_of(tmp_path) as client:
        ids = await client.admin.create_topics([NewTopic("orders", 1)])
        data = batch()
        before = bytes(data)
        for offset in range(3):
            part = PartitionProduceData(index=0, records=data)
            topic = TopicProduceData(topic_id=ids["orders"], partition_data=[part])
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            answer = await client.requests.submit(SendRequest(NODE, request, ProduceResponse, 1000))
            assert isinstance(answer, ProduceResponse)
            assert answer.responses[0].partition_responses[0].base_offset == offset
        assert data == before


async def test_without_acks_nothing_is_awaited_and_a_failure_costs_nobody(tmp_path: Path) -> None:
    """All clients of a listener share its link."""
    async with client_of(tmp_path) as client:
        waiting = await waiting_fetch(client, channel=0)
        part = PartitionProduceData(index=7, records=batch())
        topic = TopicProduceData(name="orders", partition_data=[part])
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
        ask = SendRequest(
            NODE, request, ProduceResponse, 1000, version_max=12, expects_response=False
        )
        assert await client.requests.submit(ask) is None
        assert await client.admin.list_topics()
        assert not waiting.done()
        waiting.cancel()


async def test_a_fault_in_a_handler_costs_its_own_request(tmp_path: Path) -> None:
    class Faulty:
        def allows(self, action: Action) -> bool:
            if action.resource_type is ResourceType.GROUP:
                raise RuntimeError("a mistake of ours")
            return True

    async with (
        running_node(tmp_path, Faulty(), log_flush_policy="os") as node,
        in_process_client(node.processor, name="text", listener="PLAINTEXT") as client,
    ):
        waiting = await waiting_fetch(client, channel=0)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        with pytest.raises(BrokerUnreachable):
            await client.requests.submit(SendRequest(NODE, request, OffsetFetchResponse, 1000))
        assert await client.admin.list_topics()
        assert not waiting.done()
        waiting.cancel()


async def test_a_long_poll_ends_with_its_channel(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        waiting = await waiting_fetch(client, channel=5)
        await client.requests.close_channel(5)
        with pytest.raises(ClientClosed):
            await waiting


async def test_a_late_answer_is_an_error_and_the_link_goes_on(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        ids = await client.admin.create_topics([NewTopic("orders", 1)])
        late = client.requests.submit(
            SendRequest(NODE, fetch(ids["orders"], 60_000), FetchResponse, 20)
        )
        slow = client.requests.submit(
            SendRequest(NODE, fetch(ids["orders"], 300), FetchResponse, 60_000)
        )
        with pytest.raises(RequestTimedOut):
            await late
        assert isinstance(await slow, FetchResponse)


async def test_an_api_or_version_that_is_not_served_is_named(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        markers = WriteTxnMarkersRequest(markers=[])
        with pytest.raises(UnsupportedApi, match="WriteTxnMarkers"):
            await client.requests.submit(SendRequest(NODE, markers, WriteTxnMarkersResponse, 1000))
        request = MetadataRequest(topics=[])
        with pytest.raises(UnsupportedApi, match="needs one of 99"):
            await client.requests.submit(
                SendRequest(NODE, request, MetadataResponse, 1000, version_min=99)
            )


async def test_the_version_spoken_is_the_highest_the_call_allows(tmp_path: Path) -> None:
    """Topics have ids since version 10 of Metadata."""
    async with client_of(tmp_path) as client:
        await client.admin.create_topics([NewTopic("orders", 1)])
        for version_max, has_id in ((9, False), (1000, True)):
            ask = SendRequest(
                NODE, MetadataRequest(topics=None), MetadataResponse, 1000, version_max=version_max
            )
            answer = await client.requests.submit(ask)
            assert isinstance(answer, MetadataResponse)
            assert bool(answer.topics[0].topic_id.int) is has_id


async def test_what_waits_for_a_request_before_it_is_not_done_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    async with running_node(tmp_path, log_flush_policy="os") as node:
        async with in_process_client(node.processor, name="test", listener="PLAINTEXT") as client:
            await client.connect()
            await client.admin.create_topics([NewTopic("orders", 9)])

            def ask(*partitions: int) -> SendRequest:
                data = [PartitionProduceData(index=each, records=batch()) for each in partitions]
                topic = TopicProduceData(name="orders", partition_data=data)
                request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[topic])
                return SendRequest(NODE, request, ProduceResponse, 5_000, version_max=12)

            answers = [client.requests.submit(ask(*range(8))), client.requests.submit(ask(8))]
            await asyncio.sleep(0)
        for answer in answers:
            with pytest.raises(ClientClosed):
                await answer
        ends = [
            node.services.replicas.require("orders", each).log.log_end_offset for each in range(9)
        ]
        assert ends == [1] * 8 + [0]
