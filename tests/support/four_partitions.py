"""A topic of four partitions, and one request of each kind that asks for all of them."""

import asyncio
from pathlib import Path
from typing import Any, Final

from headrace.core.errors import ErrorCode
from headrace.node.node import Node
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.logs import batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

PARTITIONS: Final = range(4)
RECORDS: Final = 3
PATIENCE_SECONDS: Final = 20


class Client(RawClient):
    """Requests for every partition of `t`; answers as lists by partition."""

    def __init__(self, node: Node) -> None:
        super().__init__(*node.addresses["PLAINTEXT"])

    async def ask(self, request: Any, version: int) -> Any:
        return await self.call(request, version)

    async def create(self, *names: str, **configs: str) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=len(PARTITIONS),
                replication_factor=1,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
            for name in names or ("t",)
        ]
        await self.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)

    async def delete(self) -> None:
        await self.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)

    async def produce(self, topic: str = "t") -> list[int]:
        data = [PartitionProduceData(index=n, records=bytes(batch())) for n in PARTITIONS]
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = await self.ask(request, 9)
        return [each.error_code for each in answer.responses[0].partition_responses]

    async def fetch(self) -> list[int]:
        wanted = [
            FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000)
            for n in PARTITIONS
        ]
        request = FetchRequest(
            topics=[FetchTopic(topic="t", partitions=wanted)], max_wait_ms=0, min_bytes=0
        )
        answer = await self.ask(request, 11)
        return [each.error_code for each in answer.responses[0].partitions]

    async def ends(self) -> list[tuple[int, int]]:
        wanted = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in PARTITIONS]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wanted)]
        )
        answer = await self.ask(request, 5)
        return [(each.error_code, each.offset) for each in answer.topics[0].partitions]

    async def delete_records(self, offset: int = 0) -> list[int]:
        wanted = [DeleteRecordsPartition(partition_index=n, offset=offset) for n in PARTITIONS]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=5000
        )
        answer = await self.ask(request, 2)
        return [each.error_code for each in answer.topics[0].partitions]

    async def epoch_ends(self) -> list[int]:
        wanted = [OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in PARTITIONS]
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=wanted)]
        )
        answer = await self.ask(request, 3)
        return [each.error_code for each in answer.topics[0].partitions]

    async def producers(self) -> list[int]:
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=list(PARTITIONS))]
        )
        answer = await self.ask(request, 0)
        return [each.error_code for each in answer.topics[0].partitions]

    async def offline_replicas(self) -> list[list[int]]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        answer = await self.ask(request, 9)
        found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        return [each.offline_replicas for each in found]

    async def committed(self, group: str) -> tuple[int, int]:
        """Error and offset, once the coordinator has loaded."""
        asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])]
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = (await self.ask(request, 8)).groups[0]
                if found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await asyncio.sleep(0.01)
        return found.error_code, (
            -2 if found.error_code else found.topics[0].partitions[0].committed_offset
        )


async def fill(directory: Path) -> None:
    async with running_node(directory) as node, Client(node) as client:
        await client.create()
        for _ in range(RECORDS):
            assert await client.produce() == [0, 0, 0, 0]
