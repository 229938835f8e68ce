"""ListOffsets by time: others are served while the disk is asked and a batch unfolded."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import record_work
from headrace.controller.commands import CreateTopics, NewTopic
from headrace.log import timestamps
from headrace.log.partition_log import PartitionLog
from headrace.protocol.messages.api_versions import ApiVersionsRequest
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
from headrace.protocol.records import decode
from tests.support.logs import START_MS, append, batch, open_log, simulated_disk
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

MAX_TIMESTAMP = -3
GIVE_UP_SECONDS = 10


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
        assert node._controller is not None
        await node._controller.submit(CreateTopics((NewTopic("t", 1, 1),)))
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
    monkeypatch.setattr(record_work, "BYTES_PER_TURN", 0)
    compacted = NewTopic("compacted", 1, 1, configs=(("cleanup.policy", "compact"),))
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
        assert node._controller is not None
        await node._controller.submit(CreateTopics((NewTopic("slow", 1, 1), compacted)))
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
