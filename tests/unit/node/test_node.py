"""Start and stop of a whole node: what it leaves behind, and what it shows first."""

import asyncio
from pathlib import Path

import pytest

from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

CLEAN_MARKER = ".kafka_cleanshutdown"


async def test_a_clean_stop_is_marked_and_the_mark_taken_at_the_next_start(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert (tmp_path / CLEAN_MARKER).exists()
    async with running_node(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()


async def test_a_start_that_fails_does_not_pass_for_a_clean_stop(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with running_node(tmp_path):
        pass
    with pytest.raises(OSError, match="address already in use"):
        async with running_node(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}"):
            pass
    assert not (tmp_path / CLEAN_MARKER).exists()
    taken.close()
    await taken.wait_closed()
    async with running_node(tmp_path) as node:
        assert node.addresses, "the failed start let go of the directory"


async def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    listeners = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    async with running_node(
        tmp_path,
        listeners=listeners,
        advertised_listeners="INSIDE://inner.example:1,OUTSIDE://outer.example:2",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    ) as node:
        told = {}
        for name, address in node.addresses.items():
            async with RawClient(*address) as client:
                answer = await client.call(MetadataRequest(topics=[]), 12)
            assert isinstance(answer, MetadataResponse)
            told[name] = [(broker.host, broker.port) for broker in answer.brokers]
    assert told == {"INSIDE": [("inner.example", 1)], "OUTSIDE": [("outer.example", 2)]}


async def test_the_leader_epoch_grows_at_every_start(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        async with (
            running_node(tmp_path) as node,
            RawClient(*node.addresses["PLAINTEXT"]) as client,
        ):
            epochs.append(await _leader_epoch(client, "t"))
            offsets = await client.call(_latest("t", epochs[-1]), 10)
            assert isinstance(offsets, ListOffsetsResponse)
            assert offsets.topics[0].partitions[0].error_code == 0
    assert epochs == sorted(set(epochs))


async def _leader_epoch(client: RawClient, name: str) -> int:
    while True:  # created on first mention, there on a later one
        asked = [MetadataRequestTopic(name=name)]
        answer = await client.call(MetadataRequest(topics=asked), 12)
        assert isinstance(answer, MetadataResponse)
        if not answer.topics[0].error_code:
            return answer.topics[0].partitions[0].leader_epoch


def _latest(topic: str, epoch: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
    )
