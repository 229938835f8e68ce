"""A topic that is deleted and made again in one go: its old logs are nobody's any more."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import ErrorCode
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.replication import replica_manager
from tests.support.logs import batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

PARTITIONS = 40


@pytest.mark.parametrize("version", [12, 13])
async def test_nothing_is_acknowledged_in_a_log_that_is_on_its_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(replica_manager, "PARTITIONS_PER_TURN", 1)
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        submit = node.controller.submit
        await submit(CreateTopics((TopicToCreate("t", PARTITIONS, 1),)))
        old = node.services.controller.image.topics["t"].id
        both = asyncio.gather(
            submit(DeleteTopics((TopicToDelete("t"),))),
            submit(CreateTopics((TopicToCreate("t", PARTITIONS, 1),))),
        )

        def made_again() -> UUID | None:
            topic = node.services.controller.image.topics.get("t")
            return None if topic is None or topic.id == old else topic.id

        while (new := made_again()) is None:
            await asyncio.sleep(0)
        data = PartitionProduceData(index=PARTITIONS - 1, records=bytes(batch()))
        topic = TopicProduceData(name="t", topic_id=new, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        codes = []
        for _ in range(1_000):
            answer = await client.call(request, version)
            assert isinstance(answer, ProduceResponse)
            codes.append(answer.responses[0].partition_responses[0].error_code)
            if codes[-1] == ErrorCode.NONE:
                break
        assert codes[-1] == ErrorCode.NONE
        await both
        kept = node.services.replicas.require("t", PARTITIONS - 1)
        assert (kept.topic_id, kept.log.log_end_offset) == (new, 1)
        # Known by its name before it is known by its id: the image comes last.
        retriable = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID}
        assert set(codes[:-1]) <= retriable
