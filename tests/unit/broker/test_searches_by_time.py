"""ListOffsets by time: which record is found, and who is served while it is searched for."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import record_work
from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.core.ids import Offset
from headrace.log import timestamps
from headrace.log.partition_log import PartitionLog
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
from headrace.protocol.records import decode
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from tests.support.logs import START_MS, append, batch, open_log, simulated_disk
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

MAX_TIMESTAMP = -3
GIVE_UP_SECONDS = 10
# Two batches; the second begins before the first ends.
TIMES = ([1_000, 3_000, 2_000], [1_500, 2_500, 4_000])


@pytest.mark.parametrize(
    ("search", "asked"), [("max_timestamp", MAX_TIMESTAMP), ("find_by_timestamp", START_MS)]
)
async def test_another_client_is_answered_while_records_are_searched_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str, asked: int
) -> None:
    go_on = threading.Event()
    waited = []

    def slow(*_: Any) -> None:
        waited.append(go_on.wait(GIVE_UP_SECONDS))

    monkeypatch.setattr(PartitionLog, search, slow)
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as searching,
        RawClient(*node.addresses["PLAINTEXT"]) as other,
    ):
        await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1),)))
        partition = ListOffsetsPartition(partition_index=0, timestamp=asked)
        topic = ListOffsetsTopic(name="t", partitions=[partition])
        searching.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        await other.call(ApiVersionsRequest(), 0)
        go_on.set()
        _, answer = await searching.receive(ListOffsetsResponse, 7)
        assert waited == [True], "the event loop waited for the search"
        assert answer.topics[0].partitions[0].error_code == 0


async def test_a_search_that_hangs_holds_up_neither_long_batches_nor_other_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    search = PartitionLog.find_by_timestamp
    waited = []

    def slow(log: PartitionLog, *arguments: Any) -> Any:
        if "slow" in log.directory:
            waited.append(go_on.wait(GIVE_UP_SECONDS))
        return search(log, *arguments)

    monkeypatch.setattr(PartitionLog, "find_by_timestamp", slow)
    monkeypatch.setattr(record_work, "BYTES_PER_ITERATION", 0)
    compacted = TopicToCreate("compacted", 1, 1, configs=(("cleanup.policy", "compact"),))
    records = bytes(batch(3))
    produced = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name="compacted", partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )

    def searched(topic: str) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(partition_index=0, timestamp=START_MS)
        named = ListOffsetsTopic(name=topic, partitions=[partition])
        return ListOffsetsRequest(replica_id=-1, topics=[named])

    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as searching,
        RawClient(*node.addresses["PLAINTEXT"]) as other,
    ):
        await node.controller.submit(CreateTopics((TopicToCreate("slow", 1, 1), compacted)))
        searching.send(searched("slow"), 7)
        answer = await other.call(produced, 9)
        assert isinstance(answer, ProduceResponse)
        found = await other.call(searched("compacted"), 7)
        go_on.set()
        await searching.receive(ListOffsetsResponse, 7)
    assert waited == [True], "others waited for the search"
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert isinstance(found, ListOffsetsResponse)
    assert found.topics[0].partitions[0].offset == 0


@pytest.mark.parametrize("codec", [0, 4])
def test_no_more_records_of_a_batch_are_made_than_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    log = open_log(simulated_disk())
    append(log, batch(timestamps=[START_MS + number for number in range(1_000)], codec=codec))
    made = 0
    iterate = decode.iterate_records

    def counting(*arguments: Any) -> Any:
        nonlocal made
        for record in iterate(*arguments):
            made += 1
            yield record

    monkeypatch.setattr(timestamps, "iterate_records", counting)
    found = log.find_by_timestamp(START_MS + 2, log.log_end_offset)
    assert found is not None
    assert (found.offset, made) == (2, 3)


async def _fill(node: Node, client: RawClient, times: tuple[list[int], ...]) -> None:
    await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1),)))
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
        services = node.services
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
