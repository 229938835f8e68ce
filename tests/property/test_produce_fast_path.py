"""Random requests on one connection, with and without the fast path: same answers, same log."""

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from headrace.broker import frame_dispatcher
from headrace.broker.connection import Connection
from headrace.broker.produce_fast_path import ProduceFastPath
from headrace.controller.commands import (
    AlterConfigOp,
    ConfigsToAlter,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    TopicToCreate,
    TopicToDelete,
)
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ErrorCode
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
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

STEPS = 400
TOPICS = ("a", "b")


class Script:
    """One run: the same seed makes the same steps, whatever the broker answers."""

    def __init__(self, seed: int, node: Node, client: RawClient) -> None:
        self._random = Random(seed)
        self._node = node
        self._client = client
        self._ids: dict[str, UUID] = {}
        self._all_ids: list[UUID] = []
        self._request: tuple[ProduceRequest, int] | None = None

    async def run(self) -> list[bytes]:
        answers = []
        for name in TOPICS:
            await self._create(name)
        for step in range(STEPS):
            kind = self._random.random()
            name = self._random.choice(TOPICS)
            if kind < 0.03:
                await self._delete(name)
            elif kind < 0.08:
                await self._create(name)
            elif kind < 0.13:
                await self._alter(name)
            else:
                answers.append(await self._produce(step))
        return answers

    async def _produce(self, step: int) -> bytes:
        # Nearly always the last request once more: that is what the fast path is for.
        if self._request is None or self._random.random() < 0.12:
            self._request = self._new_request()
        request, version = self._request
        topic = request.topic_data[0]
        topic.topic_id = self._ids.get(topic.name, UUID(int=1))
        topic.partition_data[0].records = self._records()
        self._client.send_bytes(encode_request(request, version, step, "me"))
        answer = await self._client.receive_frame()
        for number, topic_id in enumerate(self._all_ids):
            answer = answer.replace(topic_id.bytes, UUID(int=number + 2).bytes)
        return answer

    def _new_request(self) -> tuple[ProduceRequest, int]:
        random = self._random
        data = PartitionProduceData(index=random.choice((0, 0, 0, 0, 1, 7)), records=None)
        topic = TopicProduceData(
            name=random.choice((*TOPICS, *TOPICS, "nowhere")), partition_data=[data]
        )
        request = ProduceRequest(
            transactional_id=random.choice((None,) * 7 + ("t",)),
            acks=random.choice((1, -1) * 4 + (2, -2, 32767)),
            timeout_ms=5_000,
            topic_data=[topic],
        )
        return request, random.choice((3, 7, 9, 12, 13))

    def _records(self) -> bytes | None:
        random = self._random
        count = random.choice((1, 1, 2, 20))
        batch = bytes(
            encode_batch(
                [Record(i, 1_000, random.choice((b"k", None)), b"v" * 9, ()) for i in range(count)]
            )
        )
        return random.choice((batch, batch, batch, batch, batch[:-1] + b"!", b"", None, batch * 2))

    async def _create(self, name: str) -> None:
        controller = self._node.controller
        assert controller is not None
        await controller.submit(CreateTopics((TopicToCreate(name, 2, 1),)))
        found = controller.image.topics[name].id
        if self._ids.get(name) != found:
            self._ids[name] = found
            self._all_ids.append(found)

    async def _delete(self, name: str) -> None:
        controller = self._node.controller
        assert controller is not None
        await controller.submit(DeleteTopics((TopicToDelete(name),)))

    async def _alter(self, name: str) -> None:
        controller = self._node.controller
        assert controller is not None
        key, value = self._random.choice(
            (
                ("min.insync.replicas", "2"),
                ("min.insync.replicas", "1"),
                ("max.message.bytes", "90"),
                ("max.message.bytes", "100000"),
                ("cleanup.policy", "compact"),
                ("cleanup.policy", "delete"),
            )
        )
        change = AlterConfigOp(key, 0, value)
        await controller.submit(
            IncrementalAlterConfigs((ConfigsToAlter(ConfigResourceType.TOPIC, name, (change,)),))
        )


def logs(directory: Path) -> dict[str, bytes]:
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in sorted(directory.glob("[ab]-?/*.log"))
    }


@pytest.mark.parametrize("seed", range(8))
async def test_the_fast_path_changes_neither_answers_nor_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    taken: list[bool] = []
    serve = ProduceFastPath.serve

    def counted(self: ProduceFastPath, connection: Connection, frame: memoryview) -> bool:
        taken.append(serve(self, connection, frame))
        return taken[-1]

    monkeypatch.setattr(ProduceFastPath, "serve", counted)
    seen: list[list[bytes]] = []
    for way in ("fast", "normal"):
        if way == "normal":
            monkeypatch.setattr(frame_dispatcher, "observe", lambda *_: None)
        async with (
            running_node(tmp_path / way, log_flush_policy="os") as node,
            RawClient(*node.addresses["PLAINTEXT"]) as client,
        ):
            seen.append(await Script(seed, node, client).run())
    assert True in taken
    assert seen[0] == seen[1]
    assert logs(tmp_path / "fast") == logs(tmp_path / "normal")


@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
async def test_illegal_acks_are_refused_every_time(tmp_path: Path, version: int) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        controller = node.controller
        assert controller is not None
        await controller.submit(CreateTopics((TopicToCreate("a", 1, 1),)))
        topic_id = controller.image.topics["a"].id
        codes = []
        for acks in (1, 1, 1, 2, 2, 2, -2, -2, -2, 32767, 32767, 32767):
            data = PartitionProduceData(
                index=0, records=bytes(encode_batch([Record(0, 1_000, None, b"v", ())]))
            )
            topic = TopicProduceData(name="a", topic_id=topic_id, partition_data=[data])
            request = ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[topic])
            client.send_bytes(encode_request(request, version, 1, "me"))
            _, answer = decode_response(ProduceResponse, await client.receive_frame(), version)
            codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.INVALID_REQUIRED_ACKS] * 9
