"""A producer that did not wait for the disk still finds what it wrote."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.node.node import Node
from headrace.protocol.api_keys import response_class
from headrace.protocol.frames import encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.replication.partition import Partition
from headrace.security.authorizer import AclOperation, Action
from tests.support.batches import FIXED_TIMESTAMP_MS, Batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path) as running:
        yield running


@pytest.fixture
async def client(node: Node) -> AsyncIterator[RawClient]:
    host, port = node.addresses["PLAINTEXT"]
    async with RawClient(host, port) as opened:
        topic = CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        await opened.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        yield opened


async def after_a_write(client: RawClient, question: Message, version: int) -> Message:
    """The answer to a question sent right behind a produce with acks=1.

    Both go out in one piece: the flush of the first is not over when the second is looked at.
    """
    data = PartitionProduceData(index=0, records=Batch().encode())
    topic = TopicProduceData(name="t", partition_data=[data])
    produce = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    client.send_bytes(
        encode_request(produce, 8, 1, "t") + encode_request(question, version, 2, "t")
    )
    await client.receive(ProduceResponse, 8)
    assert question.schema.api_key is not None
    _, answer = await client.receive(response_class(question.schema.api_key), version)
    return answer


@pytest.mark.parametrize("asked", [LATEST, MAX_TIMESTAMP, FIXED_TIMESTAMP_MS])
async def test_the_end_of_a_log_holds_what_was_acknowledged_before(
    client: RawClient, asked: int
) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=asked)
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    question = ListOffsetsRequest(replica_id=-1, topics=[topic])
    answer = await after_a_write(client, question, 7)
    assert isinstance(answer, ListOffsetsResponse)
    [found] = answer.topics[0].partitions
    assert (found.error_code, found.offset) == (0, 1 if asked == LATEST else 0)


@pytest.mark.parametrize("below", [1, -1])
async def test_what_was_acknowledged_can_be_deleted(client: RawClient, below: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=below)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    question = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    answer = await after_a_write(client, question, 1)
    assert isinstance(answer, DeleteRecordsResponse)
    [deleted] = answer.topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (0, 1)


class OnlyWrites:
    def allows(self, action: Action) -> bool:
        return action.operation in (AclOperation.CREATE, AclOperation.WRITE)


@pytest.mark.parametrize(
    ("question", "version"),
    [
        (
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)],
                    )
                ],
            ),
            7,
        ),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
                    )
                ],
                timeout_ms=1000,
            ),
            1,
        ),
    ],
    ids=["ListOffsets", "DeleteRecords"],
)
async def test_who_may_not_ask_does_not_keep_the_disk_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: Message, version: int
) -> None:
    waited: list[Partition] = []
    async with (
        running_node(tmp_path, OnlyWrites()) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1),)))
        monkeypatch.setattr(
            Partition, "when_flushed", lambda partition, *_: waited.append(partition)
        )
        answer = await after_a_write(client, question, version)
    assert isinstance(answer, ListOffsetsResponse | DeleteRecordsResponse)
    [refused] = answer.topics[0].partitions
    assert (refused.error_code, waited) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


async def test_the_start_of_a_log_is_past_what_was_deleted_just_before(client: RawClient) -> None:
    deletion = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
            )
        ],
        timeout_ms=1000,
    )
    earliest = ListOffsetsPartition(partition_index=0, timestamp=-2)
    question = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[earliest])]
    )
    written = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    await after_a_write(
        client,
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[written])]
        ),
        7,
    )
    client.send_bytes(encode_request(deletion, 1, 3, "t") + encode_request(question, 7, 4, "t"))
    await client.receive(DeleteRecordsResponse, 1)
    _, answer = await client.receive(ListOffsetsResponse, 7)
    assert answer.topics[0].partitions[0].offset == 1
