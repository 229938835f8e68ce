"""Fetches of many partitions that wait for more: what wakes them, and what waiting costs others."""

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId, Offset
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration
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
from headrace.protocol.records.header import parse_header
from headrace.replication.partition import Partition
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
    await node.controller.submit(CreateTopics((TopicToCreate("t", PARTITIONS, 1),)))


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
    while not any(link.delayed_operations for each in node.listeners for link in each.connections):
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


FOLLOWER = 9


async def test_a_follower_is_woken_by_what_is_written_and_a_consumer_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as consumer,
        RawClient(*node.addresses["PLAINTEXT"]) as follower,
    ):
        await create(node)
        partition = node.services.replicas.require("t", 0)
        registered = node.services.metadata.image.topics["t"].partitions[0]
        me = registered.leader
        partition.become_leader(registered._replace(replicas=(me, FOLLOWER)))
        waiting = fetch((0, 0), max_wait_ms=FOR_EVER_MS)
        consumer.send(waiting, VERSION)
        await fetch_is_waiting(node)
        waiting.replica_id = FOLLOWER
        follower.send(waiting, VERSION)
        flushed = Partition.flushed
        monkeypatch.setattr(Partition, "flushed", lambda *_: None)
        while len(partition._listeners or ()) < 2:
            await asyncio.sleep(0)
        sent = bytearray(BATCH)
        partition.append([(0, parse_header(sent))], memoryview(sent), 1)
        (data,) = await received(follower)
        assert (data.error_code, data.high_watermark, bool(data.records)) == (0, 0, True)
        flushed(partition, Offset(1), partition.appended_bytes)
        (data,) = await received(consumer)
        assert (data.error_code, data.high_watermark, bool(data.records)) == (0, 1, True)


async def test_a_follower_that_the_metadata_do_not_know_is_told_they_may_be_old(
    tmp_path: Path,
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as follower,
    ):
        await create(node)
        asked = fetch((0, 0))
        asked.replica_id = FOLLOWER
        follower.send(asked, VERSION)
        (data,) = await received(follower)
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [12, 16])
async def test_a_fetch_that_waits_at_a_leader_that_resigns_is_told_who_leads(
    tmp_path: Path, version: int
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await create(node)
        image = node.services.metadata.image
        topic = image.topics["t"]
        waiting = fetch((0, 0), (1, 0), max_wait_ms=FOR_EVER_MS)
        waiting.topics[0].topic_id = topic.id
        client.send(waiting, version)
        await fetch_is_waiting(node)
        led = topic.partitions[0]._replace(leader=NodeId(FOLLOWER), leader_epoch=7)
        moved = replace(topic, partitions=(led, *topic.partitions[1:]))
        endpoint = BrokerEndpoint("PLAINTEXT", "elsewhere", 9092)
        broker = BrokerRegistration(NodeId(FOLLOWER), 1, UUID(int=1), (endpoint,), {}, fenced=False)
        node.services.metadata.image = replace(
            image,
            topics={"t": moved},
            topics_by_id={topic.id: moved},
            brokers={**image.brokers, FOLLOWER: broker},
        )
        node.services.replicas.require("t", 0).become_follower(led)
        _, response = await client.receive(FetchResponse, version)
        gone, here = response.responses[0].partitions
        assert (gone.error_code, here.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        hint = (gone.current_leader.leader_id, gone.current_leader.leader_epoch)
        assert hint == ((FOLLOWER, 7) if version >= 16 else (-1, -1))
        assert [each.host for each in response.node_endpoints] == ["elsewhere"] * (version >= 16)
