"""The short way of a repeated produce gives what the whole way gives, byte for byte."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.broker import frame_dispatcher, produce_fast_path
from headrace.broker.connection import Connection
from headrace.broker.produce_fast_path import ProduceFastPath
from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId, Offset
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration
from headrace.node.node import Node
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.replication.partition import Partition
from headrace.replication.waiters import CommitCallback
from headrace.security.authorizer import AclOperation, Action, AllowAll
from headrace.security.principal import ANONYMOUS, Principal
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

VERSIONS = range(3, 14)


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every request that met a path: whether it took it."""
    taken: list[bool] = []
    whole = ProduceFastPath.serve

    def serve(self: ProduceFastPath, connection: Connection, frame: memoryview) -> bool:
        taken.append(whole(self, connection, frame))
        return taken[-1]

    monkeypatch.setattr(ProduceFastPath, "serve", serve)
    return taken


async def new_topic(node: Node, name: str = "t", partitions: int = 2) -> UUID:
    controller = node.controller
    assert controller is not None
    await controller.submit(CreateTopics((TopicToCreate(name, partitions, 1),)))
    return controller.image.topics[name].id


def batch(*values: bytes, timestamp: int = 1_000) -> bytes:
    return bytes(
        encode_batch([Record(i, timestamp, None, value, ()) for i, value in enumerate(values)])
    )


def request(
    topic_id: UUID, records: bytes, *, acks: int = 1, partition: int = 0, timeout_ms: int = 5_000
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def corrupt(records: bytes) -> bytes:
    return records[:-1] + bytes((records[-1] ^ 1,))


async def answers(node: Node, frames: Sequence[bytes]) -> list[bytes]:
    """Send everything at once; the answers as they come."""
    host, port = node.addresses["PLAINTEXT"]
    async with RawClient(host, port) as client:
        for frame in frames:
            client.send_bytes(frame)
        return [await client.receive_frame() for _ in frames]


def script(version: int, topic_id: UUID, acks: int) -> list[bytes]:
    """Good batches of several sizes, bad ones between, another partition, another acks."""
    sent = [
        request(topic_id, batch(b"a"), acks=acks),
        request(topic_id, batch(b"b"), acks=acks),
        request(topic_id, batch(b"c"), acks=acks),
        request(topic_id, batch(b"long" * 50), acks=acks),
        request(topic_id, batch(b"long" * 8_000), acks=acks),
        request(topic_id, corrupt(batch(b"bad")), acks=acks),
        request(topic_id, batch(b"", b"2", b"3"), acks=acks),
        request(topic_id, b"", acks=acks),
        request(topic_id, batch(b"other"), acks=acks, partition=1),
        request(topic_id, batch(b"d"), acks=acks),
        request(topic_id, batch(b"not there"), acks=acks, partition=9),
        request(topic_id, batch(b"e"), acks=0 - acks),
        request(topic_id, batch(b"f"), acks=acks, timeout_ms=4_000),
        request(topic_id, batch(b"g"), acks=acks),
    ]
    return [encode_request(each, version, number, "me") for number, each in enumerate(sent)]


@pytest.mark.parametrize("policy", ["os", "fsync"])
@pytest.mark.parametrize("acks", [1, -1])
async def test_answers_and_log_are_those_of_the_whole_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shortened: list[bool],
    acks: int,
    policy: str,
) -> None:
    seen: list[list[list[bytes]]] = []
    for way in ("short", "whole"):
        if way == "whole":
            monkeypatch.setattr(frame_dispatcher, "observe", lambda *_: None)
        async with running_node(tmp_path / way, log_flush_policy=policy) as node:
            topic_id = await new_topic(node)
            seen.append([await answers(node, script(v, topic_id, acks)) for v in VERSIONS])
            if way == "short":
                assert shortened.count(True) >= 6 * len(VERSIONS)
                assert shortened.count(False) >= 2 * len(VERSIONS)
                first_id = topic_id.bytes
            else:
                seen[1] = [
                    [answer.replace(topic_id.bytes, first_id) for answer in one] for one in seen[1]
                ]
    assert seen[0] == seen[1]
    logs = [(tmp_path / way / "t-0" / f"{0:020}.log").read_bytes() for way in ("short", "whole")]
    assert logs[0] == logs[1]


async def produce_thrice(client: RawClient, topic_id: UUID) -> ErrorCode:
    """Enough to go the short way if there is one; the last outcome."""
    outcome = ErrorCode.NONE
    for _ in range(3):
        client.send_bytes(encode_request(request(topic_id, batch(b"x")), 9, 1, "me"))
        _, response = decode_response(ProduceResponse, await client.receive_frame(), 9)
        outcome = ErrorCode(response.responses[0].partition_responses[0].error_code)
    return outcome


async def test_a_path_leads_to_the_topic_that_is_there_now(
    tmp_path: Path, shortened: list[bool]
) -> None:
    async with running_node(tmp_path) as node:
        topic_id = await new_topic(node)
        controller = node.controller
        assert controller is not None
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            assert await produce_thrice(client, topic_id) is ErrorCode.NONE
            assert shortened == [True]
            await controller.submit(DeleteTopics((TopicToDelete("t"),)))
            assert await produce_thrice(client, topic_id) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic_id = await new_topic(node)
            assert await produce_thrice(client, topic_id) is ErrorCode.NONE
        assert shortened == [True, False, False, False, True, True, True]


class Fickle(AllowAll):
    """Allows until told otherwise."""

    def __init__(self) -> None:
        self.denies = False

    def allows(self, action: Action) -> bool:  # noqa: ARG002 - what is asked does not matter here
        return not self.denies


async def test_every_request_on_the_path_is_authorized(
    tmp_path: Path, shortened: list[bool]
) -> None:
    authorizer = Fickle()
    async with running_node(tmp_path, authorizer) as node:
        topic_id = await new_topic(node)
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            assert await produce_thrice(client, topic_id) is ErrorCode.NONE
            authorizer.denies = True
            assert await produce_thrice(client, topic_id) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert shortened == [True, False, False, False]


@pytest.mark.parametrize("version", [8, 9])
async def test_bytes_where_the_path_has_none_go_the_whole_way(
    tmp_path: Path, shortened: list[bool], version: int
) -> None:
    """Tags of newer clients behind the batch, or bytes behind the request."""
    async with running_node(tmp_path) as node:
        topic_id = await new_topic(node)
        plain = encode_request(request(topic_id, batch(b"x")), version, 7, "me")
        size = len(plain) - 4 + 3
        tagged = size.to_bytes(4, "big") + plain[4:-1] + (b"\1\7\1!" if version >= 9 else b"\0" * 4)
        found = await answers(node, [plain, plain, plain, tagged, plain])
    assert shortened == [True, False, True]
    assert [len(answer) for answer in found] == [len(found[0])] * 5


OTHER = NodeId(99)


def resign(node: Node) -> Partition:
    """Partition 0 of `t` is led by another broker from now on, which the metadata know."""
    partition = node.services.replicas.require("t", 0)
    image = node.services.metadata.image
    topic = image.topics["t"]
    old = topic.partitions[0]
    led = old._replace(leader=OTHER, leader_epoch=old.leader_epoch + 1)
    changed = replace(topic, partitions=(led, *topic.partitions[1:]))
    endpoint = BrokerEndpoint("PLAINTEXT", "elsewhere", 9092)
    broker = BrokerRegistration(OTHER, 1, UUID(int=1), (endpoint,), {}, fenced=False)
    node.services.metadata.image = replace(
        image,
        topics={**image.topics, "t": changed},
        topics_by_id={**image.topics_by_id, topic.id: changed},
        brokers={**image.brokers, OTHER: broker},
    )
    partition.become_follower(led)
    return partition


def decoded(answer: bytes, version: int) -> ProduceResponse:
    _, response = decode_response(ProduceResponse, answer, version)
    return response


@pytest.mark.parametrize("version", [7, 9, 10, 13])
async def test_a_leader_that_resigned_is_not_written_to_by_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortened: list[bool], version: int
) -> None:
    seen = []
    for way in ("short", "whole"):
        if way == "whole":
            monkeypatch.setattr(frame_dispatcher, "observe", lambda *_: None)
        async with running_node(tmp_path / way) as node:
            topic_id = await new_topic(node)
            frame = encode_request(request(topic_id, batch(b"v")), version, 1, "me")
            async with RawClient(*node.addresses["PLAINTEXT"]) as client:
                for _ in range(3):
                    client.send_bytes(frame)
                    await client.receive_frame()
                partition = resign(node)
                client.send_bytes(frame)
                response = decoded(await client.receive_frame(), version)
            assert partition.log.log_end_offset == 3
            response.responses[0].topic_id = UUID(int=0)
            seen.append(response)
    assert shortened == [True, True]
    assert seen[0] == seen[1]
    (answer,) = seen[0].responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.base_offset == -1
    # Kafka's clients then go there without asking for metadata (KIP-951).
    hinted = version >= 10
    assert answer.current_leader.leader_id == (OTHER if hinted else -1)
    assert [each.host for each in seen[0].node_endpoints] == ["elsewhere"] * hinted


async def test_who_waits_for_the_commit_hears_that_the_leader_resigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortened: list[bool]
) -> None:
    async with running_node(tmp_path) as node:
        topic_id = await new_topic(node)
        frame = encode_request(request(topic_id, batch(b"v"), acks=-1), 10, 1, "me")
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            for _ in range(2):
                client.send_bytes(frame)
                await client.receive_frame()
            waiting = asyncio.Event()
            when_committed = Partition.when_committed

            def wait(self: Partition, offset: Offset, call: CommitCallback, who: object) -> None:
                when_committed(self, offset, call, who)
                waiting.set()

            monkeypatch.setattr(Partition, "when_committed", wait)
            monkeypatch.setattr(Partition, "flushed", lambda *_: None)
            client.send_bytes(frame)
            await waiting.wait()
            resign(node)
            response = decoded(await client.receive_frame(), 10)
    (answer,) = response.responses[0].partition_responses
    assert shortened == [True]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert answer.current_leader.leader_id == OTHER


async def test_who_sends_may_be_another_the_next_time(
    tmp_path: Path, shortened: list[bool]
) -> None:
    """A client may authenticate anew on a connection that has a path (KIP-368)."""

    class OnlyAnonymous(AllowAll):
        def allows(self, action: Action) -> bool:
            return action.operation is not AclOperation.WRITE or action.principal == ANONYMOUS

    async with running_node(tmp_path, OnlyAnonymous()) as node:
        topic_id = await new_topic(node)
        frame = encode_request(request(topic_id, batch(b"v")), 9, 1, "me")
        codes = []
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            for number in range(4):
                if number == 3:
                    (connection,) = node.listeners[0].connections
                    mallory = connection.origin._replace(principal=Principal("User", "mallory"))
                    connection.origin = mallory
                client.send_bytes(frame)
                (topic,) = decoded(await client.receive_frame(), 9).responses
                codes.append(topic.partition_responses[0].error_code)
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert shortened == [True, False]


@pytest.mark.parametrize("version", VERSIONS)
async def test_how_long_a_client_is_held_back_is_not_part_of_what_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortened: list[bool], version: int
) -> None:
    throttles = []
    async with running_node(tmp_path) as node:
        topic_id = await new_topic(node)
        frame = encode_request(request(topic_id, batch(b"v")), version, 1, "me")
        async with RawClient(*node.addresses["PLAINTEXT"]) as client:
            for number in range(4):
                monkeypatch.setattr(produce_fast_path, "NO_THROTTLE_MS", number)
                client.send_bytes(frame)
                throttles.append(decoded(await client.receive_frame(), version).throttle_time_ms)
    assert throttles == [0, 0, 2, 3]
    assert shortened == [True, True]
