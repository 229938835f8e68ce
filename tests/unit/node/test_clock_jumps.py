"""The wall clock is set while a broker runs: what is measured within its life goes on as before."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from headrace.node.node import Node
from headrace.node.system import RealClock
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.replication.partition import Partition
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

HOUR_MS = 3_600_000
PRODUCER = 7
PATIENCE_SECONDS = 20


class SetClock(RealClock):
    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def make(node: Node, client: RawClient, name: str, **configs: str) -> Partition:
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    partition = node.services.replicas.find(name, 0)
    assert partition is not None
    return partition


async def produce(client: RawClient, topic: str, time_ms: int) -> int:
    batch = encode_batch(
        [Record(0, time_ms, None, b"v")], producer_id=PRODUCER, producer_epoch=0, base_sequence=0
    )
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
    )
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[data])
    answer = await client.call(request, 9)
    assert isinstance(answer, ProduceResponse)
    outcome = answer.responses[0].partition_responses[0]
    assert outcome.error_code == 0
    return outcome.base_offset


async def test_flushes_by_age_go_on_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = SetClock()
    # Checkpoints flush as well.
    settings = {
        "log_flush_policy": "os",
        "log_flush_interval_ms": "50",
        "log_flush_offset_checkpoint_interval_ms": "3600000",
    }
    async with (
        running_node(tmp_path, clock=clock, **settings) as node,  # type: ignore[arg-type]  # all are keys
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        partition = await make(node, client, "t")
        clock.ahead_ms = -2 * HOUR_MS
        await produce(client, "t", clock.now_ms())
        await until(lambda: partition.log.flushed_offset == 1)


async def test_producers_are_remembered_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    """As when a machine without a battery has started in 1970 and learns the time."""
    clock = SetClock()
    async with (
        running_node(tmp_path, clock=clock, log_retention_check_interval_ms="20") as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        remembers = await make(node, client, "t", retention_ms="-1")
        forgets = await make(node, client, "u", retention_ms=str(HOUR_MS))
        for topic in ("t", "u"):
            assert await produce(client, topic, clock.now_ms()) == 0
        producer = remembers.log.producers.get(PRODUCER)
        assert producer is not None
        await until(lambda: not producer.seen)
        clock.ahead_ms = 48 * HOUR_MS
        # The look that deletes this one's record has come to the other before.
        await until(lambda: forgets.log.log_start_offset == 1)
        assert await produce(client, "t", clock.now_ms()) == 0, "sent again, not written again"
