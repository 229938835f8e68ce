"""What a broker asks of the controller in its own process."""

import asyncio
from pathlib import Path

import pytest

from headrace.broker.local_controller_channel import LocalControllerChannel
from headrace.core.errors import ErrorCode, StorageError
from headrace.core.ids import NodeId
from headrace.node.node import Node
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
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
from headrace.security.authorizer import Action
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


class DenyAll:
    """Nobody may do anything; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[Action] = []

    def allows(self, action: Action) -> bool:
        self.asked.append(action)
        return False


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


def channel_of(node: Node) -> LocalControllerChannel:
    return LocalControllerChannel(lambda: node.processor, NodeId(0))


async def test_the_broker_itself_needs_no_permission(tmp_path: Path) -> None:
    authorizer = DenyAll()
    async with running_node(tmp_path, authorizer, log_flush_policy="os") as node:
        response = await channel_of(node).send(creation("t"))
        assert isinstance(response, CreateTopicsResponse)
        assert [(each.name, each.error_code) for each in response.topics] == [("t", 0)]
        assert "t" in node.services.metadata.image.topics
        first, second = await asyncio.gather(*(node.services.producer_ids.next() for _ in "ab"))
        assert second == first + 1
    assert authorizer.asked == []


async def test_requests_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        channel = channel_of(node)
        epoch = node.services.metadata.image.brokers[NodeId(0)].epoch
        block = AllocateProducerIdsRequest(broker_id=0, broker_epoch=epoch)
        responses = await asyncio.gather(*(channel.send(block) for _ in range(3)))
    starts = []
    for response in responses:
        assert isinstance(response, AllocateProducerIdsResponse)
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]


async def test_a_controller_that_cannot_write_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(_: object) -> object:
        raise StorageError("no space")

    async with running_node(tmp_path) as node:
        monkeypatch.setattr(node.services.controller, "submit", submit)
        response = await channel_of(node).send(creation("t"))
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert response.topics[0].error_message == "no space"


async def test_a_stop_does_not_wait_for_a_request_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(_: object) -> object:
        return await asyncio.get_running_loop().create_future()

    async with running_node(tmp_path) as node:
        with monkeypatch.context() as hanging:
            hanging.setattr(node.services.controller, "submit", submit)
            response = asyncio.create_task(channel_of(node).send(creation("t")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        node.processor.kill()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await response


async def test_a_topic_that_is_mentioned_is_there_when_asked_for_again(tmp_path: Path) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        code = None
        while code != ErrorCode.NONE:
            response = await client.call(request, 9)
            assert isinstance(response, MetadataResponse)
            code = response.topics[0].error_code
            assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
