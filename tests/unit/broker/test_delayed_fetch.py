"""Fetches of many partitions that wait for more: what wakes them, and what waiting costs others."""

import asyncio
from pathlib import Path

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.node.node import Node
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.cpu_time import cpu_time
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

BATCH = bytes(encode_batch([Record(0, 1_000, None, b"value", ())]))
VERSION = 12
FOR_EVER_MS = 60_000
PARTITIONS = 3


def fetch(*asked: tuple[int, int], min_bytes: int = 1, max_wait_ms: int = 0) -> FetchRequest:
    """Of topic `t`; `asked` are partitions and offsets."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**20)
        for index, offset in asked
    ]
    topic = FetchTopic(topic="t", partitions=partitions)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[topic])


async def create(node: Node) -> None:
    assert node._controller is not None
    await node._controller.submit(CreateTopics((TopicToCreate("t", PARTITIONS, 1),)))


async def produce(client: RawClient, partition: int) -> None:
    data = PartitionProduceData(index=partition, records=BATCH)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    response = await client.call(request, 9)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0


async def received(client: RawClient) -> list[PartitionData]:
    _, response = await client.receive(FetchResponse, VERSION)
    return [data for topic in response.responses for data in topic.partitions]


async def fetch_is_waiting(node: Node) -> None:
    """Return when a fetch waits."""
    while not any(link.delayed_operations for each in node._listeners for link in each.connections):
        await asyncio.sleep(0.01)


async def test_a_partition_that_is_named_again_is_answered_once_and_as_named_last(
    tmp_path: Path,
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await create(node)
        for _ in range(2):
            await produce(client, 0)
        client.send(fetch((0, 7), (1, 0), (0, 1)), VERSION)
        first, second = await received(client)
        assert (first.partition_index, first.error_code, second.partition_index) == (0, 0, 1)
        assert first.records is not None
        assert int.from_bytes(first.records[:8], "big") == 1


async def test_a_partition_named_thousands_of_times_costs_whoever_writes_to_it_nothing(
    tmp_path: Path,
) -> None:
    async with (
        running_node(tmp_path, log_flush_policy="os") as node,
        RawClient(*node.addresses["PLAINTEXT"]) as reader,
        RawClient(*node.addresses["PLAINTEXT"]) as writer,
    ):
        await create(node)
        reader.send(fetch(*[(0, 0)] * 5_000, min_bytes=2**30, max_wait_ms=FOR_EVER_MS), VERSION)
        await fetch_is_waiting(node)
        with cpu_time() as taken:
            for _ in range(5):
                await produce(writer, 0)
            assert taken() < 1.0


async def test_what_becomes_visible_in_several_partitions_counts_together(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as reader,
        RawClient(*node.addresses["PLAINTEXT"]) as writer,
    ):
        await create(node)
        asked = [(index, 0) for index in range(PARTITIONS)]
        enough = 2 * len(BATCH)
        reader.send(fetch(*asked, min_bytes=enough, max_wait_ms=FOR_EVER_MS), VERSION)
        await fetch_is_waiting(node)
        await produce(writer, 0)
        await fetch_is_waiting(node)
        await produce(writer, 2)
        found = await received(reader)
        assert [bool(data.records) for data in found] == [True, False, True]
