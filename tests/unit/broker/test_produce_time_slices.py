"""A produce for very many partitions lets others have their turn, and keeps its order."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.broker import time_slice
from headrace.broker.long_requests import ITEMS_AT_ONCE
from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId
from headrace.metadata.delta import Delta
from headrace.node.node import Node
from headrace.protocol.message import Message
from headrace.protocol.messages.api_versions import ApiVersionsRequest
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

PARTITIONS = 30


def _request(value: bytes, *, acks: int = -1) -> ProduceRequest:
    batch = bytes(encode_batch([Record(0, 1_000, None, value, ())]))
    partitions = [PartitionProduceData(index=number, records=batch) for number in range(PARTITIONS)]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name="t", partition_data=partitions)],
    )


async def _create(node: Node) -> None:
    await node.controller.submit(CreateTopics((TopicToCreate("t", PARTITIONS, 1),)))


def _errors(response: Message) -> list[int]:
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    return [each.error_code for each in topic.partition_responses]


@pytest.fixture
def _each_append_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)


@pytest.mark.usefixtures("_each_append_is_a_turn")
@pytest.mark.parametrize("acks", [1, -1])
async def test_another_client_is_answered_meanwhile(tmp_path: Path, acks: int) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as busy,
        RawClient(*node.addresses["PLAINTEXT"]) as other,
    ):
        await _create(node)
        answered = 0

        async def ask_again_and_again() -> None:
            nonlocal answered
            while True:
                await other.call(ApiVersionsRequest(), 0)
                answered += 1

        asking = asyncio.create_task(ask_again_and_again())
        while not answered:
            await asyncio.sleep(0)
        before = answered
        errors = _errors(await busy.call(_request(b"v", acks=acks), 9))
        asking.cancel()
        assert errors == [ErrorCode.NONE] * PARTITIONS
        assert answered - before > 2


@pytest.mark.usefixtures("_each_append_is_a_turn")
async def test_requests_of_one_connection_keep_their_order(tmp_path: Path) -> None:
    values = [b"first", b"second", b"third"]
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _create(node)
        for value in values:
            client.send(_request(value), 9)
        for _ in values:
            _, response = await client.receive(ProduceResponse, 9)
            assert _errors(response) == [ErrorCode.NONE] * PARTITIONS
    for number in range(PARTITIONS):
        (log,) = (tmp_path / f"t-{number}").glob("*.log")
        stored = log.read_bytes()
        assert [stored.count(value) for value in values] == [1, 1, 1]
        assert stored.index(b"first") < stored.index(b"second") < stored.index(b"third")


@pytest.mark.usefixtures("_each_append_is_a_turn")
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_stop_waits_for_what_goes_on_later_and_answers_it(
    tmp_path: Path, acks: int
) -> None:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _create(node)
        client.send(_request(b"v", acks=acks), 9)
        while not list(tmp_path.glob("t-*/*.log")):
            await asyncio.sleep(0)
        await node.stop()
        appended = list(tmp_path.glob("t-*/*.log"))
        _, response = await client.receive(ProduceResponse, 9)
    assert _errors(response) == [ErrorCode.NONE] * PARTITIONS
    assert len(appended) == PARTITIONS


@pytest.mark.usefixtures("_each_append_is_a_turn")
async def test_nothing_is_appended_after_a_kill(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _create(node)
        client.send(_request(b"v"), 9)
        while not list(tmp_path.glob("t-*/*.log")):
            await asyncio.sleep(0)
        node.kill()
        appended = len(list(tmp_path.glob("t-*/*.log")))
        for _ in range(3 * PARTITIONS):
            await asyncio.sleep(0)
        assert len(list(tmp_path.glob("t-*/*.log"))) == appended < PARTITIONS


@pytest.mark.usefixtures("_each_append_is_a_turn")
async def test_a_topic_that_is_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _create(node)
        client.send(_request(b"v"), 9)
        await asyncio.sleep(0)
        await node.controller.submit(DeleteTopics((TopicToDelete("t"),)))
        _, response = await client.receive(ProduceResponse, 9)
        errors = _errors(response)
        assert len(errors) == PARTITIONS
        assert set(errors) <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.usefixtures("_each_append_is_a_turn")
async def test_a_partition_that_moves_away_meanwhile_is_looked_for_elsewhere(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _create(node)
        image = node.services.metadata.image
        topic = image.topics["t"]
        elsewhere = [each._replace(leader=NodeId(7), replicas=(7,)) for each in topic.partitions]
        moved_topic = replace(topic, partitions=tuple(elsewhere))
        moved = replace(image, topics={"t": moved_topic}, topics_by_id={topic.id: moved_topic})
        client.send(_request(b"v"), 9)
        while not list(tmp_path.glob("t-*/*.log")):
            await asyncio.sleep(0)
        await node.services.replicas.publish(image, moved, Delta.between(image, moved))
        _, response = await client.receive(ProduceResponse, 9)
        assert _errors(response)[-1] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_very_many_partitions_that_do_not_exist_are_refused_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    count = 2 * ITEMS_AT_ONCE
    partitions = [PartitionProduceData(index=number, records=None) for number in range(count)]
    request = ProduceRequest(
        acks=1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name="nowhere", partition_data=partitions)],
    )
    turned = 0

    async def turn(seconds: float) -> None:
        nonlocal turned
        turned += 1
        await asyncio.sleep(seconds)

    seen = {**vars(asyncio), "sleep": turn}
    monkeypatch.setattr(time_slice, "asyncio", SimpleNamespace(**seen))
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as busy:
        errors = _errors(await busy.call(request, 9))
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * count
    assert turned >= count - 1
