"""A node's metrics agree with what was done to it."""

import asyncio
from pathlib import Path

import pytest

from headrace.client import EARLIEST, AsyncClient, NewTopic, ProducerSettings, TopicPartition
from headrace.core.metrics import Histogram, Value
from headrace.node.node import Node
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.batches import Batch, values
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


def metrics_of(node: Node) -> dict[str, dict[tuple[str, ...], Value]]:
    assert node.metrics is not None
    return {family.metric.name: dict(family.samples) for family in node.metrics.collect()}


def requests_of(node: Node, api: str) -> int:
    times = metrics_of(node)["headrace_request_seconds"].get((api,))
    return times.count if isinstance(times, Histogram) else 0


def address(node: Node) -> str:
    return "{}:{}".format(*node.addresses["PLAINTEXT"])


def produce(records: bytes, topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch(offset: int, *, max_wait_ms: int = 0, max_bytes: int = 10**6) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
    return FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[partition])],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
    )


async def test_records_and_bytes_are_counted_on_their_way_in_and_out(tmp_path: Path) -> None:
    async with running_node(tmp_path, num_partitions="1") as node:
        async with AsyncClient(address(node)) as client:
            await client.admin.create_topics([NewTopic("t", partitions=1), NewTopic("quiet")])
        batches = [Batch(values=values(count)).encode() for count in (1, 7, 100)]
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as raw:
            for batch in batches:
                await raw.call(produce(batch), 9)
            await raw.call(fetch(0), 11)  # all three
            await raw.call(fetch(8, max_bytes=1), 11)  # the last, since the first is always whole
            await raw.call(fetch(108), 11)  # nothing there
        size = sum(map(len, batches))
        found = metrics_of(node)
    assert found["headrace_topic_messages_in_total"] == {("t",): 108, ("quiet",): 0}
    assert found["headrace_topic_bytes_in_total"] == {("t",): size, ("quiet",): 0}
    assert found["headrace_topic_messages_out_total"] == {("t",): 208, ("quiet",): 0}
    assert found["headrace_topic_bytes_out_total"][("t",)] == size + len(batches[-1])
    assert found["headrace_topics"] == {(): 2}
    assert found["headrace_partition_log_end_offset"] == {("t", "0"): 108, ("quiet", "0"): 0}
    assert found["headrace_partition_high_watermark"][("t", "0")] == 108
    assert found["headrace_partition_size_bytes"][("t", "0")] == size
    assert found["headrace_partition_segments"][("t", "0")] == 1


async def test_records_from_before_the_start_do_not_count_again(tmp_path: Path) -> None:
    for _ in range(2):
        async with running_node(tmp_path) as node, AsyncClient(address(node)) as client:
            async with client.producer(ProducerSettings(linger_ms=0)) as producer:
                for _ in range(5):
                    await producer.send("t", b"x")
            found = metrics_of(node)
        assert found["headrace_topic_messages_in_total"][("t",)] == 5
    assert found["headrace_partition_log_end_offset"][("t", "0")] == 10


async def test_requests_and_errors_are_counted_per_api(tmp_path: Path) -> None:
    async with running_node(tmp_path, auto_create_topics_enable="false") as node:
        async with AsyncClient(address(node)) as client:
            await client.admin.create_topics([NewTopic("t", partitions=1)])
        host, port = node.addresses["PLAINTEXT"]
        good = Batch().encode()
        async with RawClient(host, port) as raw:
            for _ in range(20):  # most of them take the short way
                answer = await raw.call(produce(good), 9)
                assert isinstance(answer, ProduceResponse)
            await raw.call(produce(good, "missing"), 9)
            await raw.call(produce(Batch(crc=1).encode()), 9)
            answer = await raw.call(fetch(10**6), 11)
            assert isinstance(answer, FetchResponse)
            found = metrics_of(node)
            produced = requests_of(node, "Produce"), requests_of(node, "Fetch")
    assert produced == (22, 1)
    assert found["headrace_request_errors_total"] == {
        ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("Produce", "CORRUPT_MESSAGE"): 1,
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
    }
    flushes = found["headrace_flush_seconds"][()]
    assert isinstance(flushes, Histogram)
    assert 1 <= flushes.count <= 21


async def test_the_wait_of_a_long_poll_is_not_counted_as_work(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        async with AsyncClient(address(node)) as client:
            await client.admin.create_topics([NewTopic("t", partitions=1)])
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as raw:
            raw.send(fetch(0, max_wait_ms=400), 11)
            async with RawClient(host, port) as other:
                while metrics_of(node)["headrace_requests_waiting"] != {("PLAINTEXT",): 1}:
                    await other.call(fetch(0), 11)
            assert metrics_of(node)["headrace_requests_in_flight"] == {("PLAINTEXT",): 1}
            await raw.receive(FetchResponse, 11)
        times = metrics_of(node)["headrace_request_seconds"][("Fetch",)]
    assert isinstance(times, Histogram)
    assert times.total < 0.3


async def test_connections_are_counted(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_connections="2") as node:
        host, port = node.addresses["PLAINTEXT"]
        async with RawClient(host, port) as one, RawClient(host, port) as two:
            for raw in (one, two):
                await raw.call(fetch(0), 11)
            async with RawClient(host, port) as refused:
                with pytest.raises(asyncio.IncompleteReadError):
                    await refused.receive_frame()
            found = metrics_of(node)
    assert found["headrace_connections"] == {("PLAINTEXT",): 2}
    assert found["headrace_connections_accepted_total"] == {("PLAINTEXT",): 2}
    assert found["headrace_connections_refused_total"] == {("PLAINTEXT",): 1}
    assert found["headrace_connections_throttled"] == {("PLAINTEXT",): 0}


async def test_a_reader_of_the_client_gets_what_the_metrics_say(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, AsyncClient(address(node)) as client:
        async with client.producer() as producer:
            for number in range(1_000):
                await producer.send("t", b"%d" % number)
        got = 0
        async with client.reader({TopicPartition("t", 0): EARLIEST}) as reader:
            async for _ in reader:
                got += 1
                if got == 1_000:
                    break
        found = metrics_of(node)
    assert found["headrace_topic_messages_in_total"][("t",)] == 1_000
    assert found["headrace_topic_messages_out_total"][("t",)] == 1_000
