"""ListOffsets by time: which record is found, by whom, and in which order it is answered."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.controller.commands import CreateTopics, NewTopic
from headrace.core.errors import ErrorCode
from headrace.core.ids import Offset
from headrace.node.node import Node
from headrace.protocol.compression import Codec
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
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
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

MAX_TIMESTAMP = -3
# Two batches; the second begins before the first ends.
TIMES = ([1_000, 3_000, 2_000], [1_500, 2_500, 4_000])


async def _fill(node: Node, client: RawClient, times: tuple[list[int], ...]) -> None:
    assert node._controller is not None
    await node._controller.submit(CreateTopics((NewTopic("t", 1, 1),)))
    for stamps in times:
        records = [Record(index, stamp, None, b"", ()) for index, stamp in enumerate(stamps)]
        data = PartitionProduceData(index=0, records=bytes(encode_batch(records, codec=Codec.GZIP)))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        answer = await client.call(request, 9)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def _request(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )


async def _search(client: RawClient, timestamp: int) -> tuple[int, int]:
    answer = await client.call(_request(timestamp), 7)
    assert isinstance(answer, ListOffsetsResponse)
    (found,) = answer.topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp


async def test_the_first_record_of_that_time_is_found_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[int] = []
    walk = iterate_records

    def noting(*arguments: Any) -> Any:
        walked.append(threading.get_ident())
        return walk(*arguments)

    monkeypatch.setattr("headrace.log.timestamps.iterate_records", noting)
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _fill(node, client, TIMES)
        assert await _search(client, 0) == (0, 1_000)
        assert await _search(client, 1_001) == (1, 3_000)
        assert await _search(client, 3_001) == (5, 4_000)
        assert await _search(client, 4_001) == (-1, -1)
        assert await _search(client, MAX_TIMESTAMP) == (5, 4_000)
        services = node._services
        assert services is not None
        partition = services.replicas.require("t", 0)
        partition.log.advance_log_start(Offset(2))
        assert await _search(client, 2_500) == (4, 2_500)
        partition.log.advance_log_start(Offset(6))
        assert await _search(client, MAX_TIMESTAMP) == (-1, -1)
    assert walked
    assert threading.get_ident() not in walked


async def test_a_request_behind_a_search_is_answered_behind_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _fill(node, client, TIMES)
        searched = client.send(_request(MAX_TIMESTAMP), 7)
        asked = client.send(ApiVersionsRequest(), 0)
        first, found = await client.receive(ListOffsetsResponse, 7)
        second, _ = await client.receive(ApiVersionsResponse, 0)
    assert (first, second) == (searched, asked)
    answer: ListOffsetsPartitionResponse = found.topics[0].partitions[0]
    assert answer.offset == 5


async def test_a_log_that_cannot_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise OSError("no such luck")

    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await _fill(node, client, TIMES)
        monkeypatch.setattr("headrace.log.timestamps.iterate_records", unreadable)
        answer = await client.call(_request(MAX_TIMESTAMP), 7)
    assert isinstance(answer, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
