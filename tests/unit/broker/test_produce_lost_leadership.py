"""A leader that appended and could not commit says where the records are."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.client import AsyncClient, NewTopic
from headrace.client.core.produce_outcome import ProduceOutcome, response_outcome
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId, Offset
from headrace.network.send_request import SendRequest
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records.encode import BatchBuilder
from headrace.replication.partition import Partition
from headrace.replication.waiters import CommitCallback
from tests.support.nodes import running_node


async def test_an_error_after_the_append_carries_the_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or "not the leader" would read as "nothing was written", and be sent again without risk."""

    def lost(_: Partition, offset: Offset, call: CommitCallback, requester: object = None) -> None:  # noqa: ARG001 - its signature
        call(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(running_node(tmp_path))
        host, port = node.addresses["PLAINTEXT"]
        client = await stack.enter_async_context(AsyncClient(f"{host}:{port}"))
        ids = await client.admin.create_topics([NewTopic("orders", 1)])
        monkeypatch.setattr(Partition, "when_committed", lost)
        for offset in range(4):  # the whole way, then the fast path
            builder = BatchBuilder()
            builder.append(None, b"v", (), 1)
            data = PartitionProduceData(index=0, records=builder.build())
            topic = TopicProduceData(name="orders", topic_id=ids["orders"], partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
            send = SendRequest(NodeId(0), request, ProduceResponse, 5_000)
            response = await client.requests.submit(send)
            assert isinstance(response, ProduceResponse)
            (part,) = response.responses[0].partition_responses
            assert (part.error_code, part.base_offset) == (6, offset)
            assert response_outcome(part.error_code, part.base_offset) is ProduceOutcome.UNKNOWN
