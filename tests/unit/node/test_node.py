"""Start and stop of a whole node: what it leaves behind, and what it shows first."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ErrorCode, StartupRefused
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.records import ConfigRecord
from headrace.metadata.sole_voter_quorum import SoleVoterQuorum
from headrace.node.system import ThreadExecutor
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
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
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.replication.replica_manager import ReplicaManager
from tests.support.four_partitions import PATIENCE_SECONDS, Client
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

T = TypeVar("T")

CLEAN_MARKER = ".kafka_cleanshutdown"


async def test_a_clean_stop_is_marked_and_the_mark_taken_at_the_next_start(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert (tmp_path / CLEAN_MARKER).exists()
    async with running_node(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()


async def test_a_start_that_finds_its_port_taken_leaves_nothing_to_recover(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.node")
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    for _ in range(2):  # a new directory, and one that was left clean
        with pytest.raises(OSError, match=f"127.0.0.1:{port} is taken"):
            async with running_node(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}"):
                pass
        assert (tmp_path / CLEAN_MARKER).exists()
        async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as each:
            await _leader_epoch(each, "t")
    taken.close()
    await taken.wait_closed()
    assert "unclean stop" not in caplog.text


async def test_a_start_that_fails_does_not_pass_for_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("while logs are opened")

    async with running_node(tmp_path):
        pass
    with monkeypatch.context() as patched:
        patched.setattr(ReplicaManager, "load", fail)
        with pytest.raises(OSError, match="while logs are opened"):
            async with running_node(tmp_path):
                pass
    assert not (tmp_path / CLEAN_MARKER).exists()
    async with running_node(tmp_path) as node:
        assert node.addresses, "the failed start let go of the directory"


async def test_a_start_that_is_called_off_keeps_the_directory_until_nobody_writes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one would find a metadata log that two have written to."""
    writes, may_write = threading.Event(), threading.Event()
    flush = MetadataLog.flush

    def slow_flush(log: MetadataLog) -> None:
        writes.set()
        assert may_write.wait(PATIENCE_SECONDS)
        flush(log)

    async def start() -> None:
        async with running_node(tmp_path):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(MetadataLog, "flush", slow_flush)
        starting = asyncio.create_task(start())
        await asyncio.to_thread(writes.wait, PATIENCE_SECONDS)
        starting.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(StartupRefused, match="in use by another process"):
            await start()
        may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await start()


async def test_a_stop_answers_what_is_under_way(tmp_path: Path) -> None:
    gate = GatedExecutor()
    async with (
        running_node(tmp_path, executor=gate) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await _leader_epoch(client, "t")
        gate.shut()
        client.send(_acks_all("t"), 9)
        await gate.somebody_waits()
        stopping = asyncio.create_task(node.stop())
        await asyncio.sleep(0)
        gate.open()
        _, answer = await client.receive(ProduceResponse, 9)
        await stopping
    assert answer.responses[0].partition_responses[0].error_code == 0


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


class GatedExecutor(ThreadExecutor):
    """Holds back what it is asked to run while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._open = asyncio.Event()
        self._open.set()
        self._held = asyncio.Event()

    async def run(self, call: Callable[[], T]) -> T:
        if not self._open.is_set():
            self._held.set()
            await self._open.wait()
        return await super().run(call)

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def somebody_waits(self) -> None:
        await self._held.wait()


def _acks_all(topic: str) -> ProduceRequest:
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"v", ())])
    partition = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )


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


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (ConfigResourceType.TOPIC, "t", "remote.storage.enable", "true"),
        (ConfigResourceType.TOPIC, "t", "segment.bytes", "14"),
        (ConfigResourceType.BROKER, "", "log.segment.bytes", "14"),
        (ConfigResourceType.BROKER, "0", "remote.log.storage.system.enable", "true"),
    ],
)
async def test_a_config_that_another_version_stored_has_no_effect_and_stops_nothing(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: ConfigResourceType,
    name: str,
    key: str,
    value: str,
) -> None:
    stored = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    async with running_node(tmp_path) as node, Client(node) as client:
        await client.create("t", "u")
        quorum = node.services.controller._quorum
        assert isinstance(quorum, SoleVoterQuorum)
        quorum.append(quorum.epoch, [stored])
    caplog.set_level(logging.WARNING)
    async with running_node(tmp_path) as node, Client(node) as client:
        assert await client.produce("t") == await client.produce("u") == [ErrorCode.NONE] * 4
        partition = node.services.replicas.find("t", 0)
        assert partition is not None
        assert partition.settings.config.segment_bytes == 1 << 30
        asked = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
            ]
        )
        answer = await client.ask(asked, 4)
        assert answer.results[0].error_code == ErrorCode.NONE
    assert f"a stored config has no effect: name={key}" in caplog.text


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_new_topic_is_shown_with_the_configs_that_it_was_given(
    tmp_path: Path, validate_only: bool
) -> None:
    given = [
        CreatableTopicConfig(name="retention.ms", value="1"),
        CreatableTopicConfig(name="retention.ms", value="2"),
    ]
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=given
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        client.send(request, 7)
        _, answer = await client.receive(CreateTopicsResponse, 7)
    own = 1
    assert [
        (each.name, each.value)
        for each in answer.topics[0].configs or ()
        if each.config_source == own
    ] == [("retention.ms", "2")]
