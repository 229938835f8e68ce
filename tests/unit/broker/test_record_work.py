"""Records that have to be looked into on the way in: many of them by a worker, on both ways."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import record_work
from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.protocol import compression
from headrace.protocol.compression import Codec
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.records import decode
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

# Enough of them for the fast path to be taken.
REQUESTS = 6


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ((("cleanup.policy", "compact"),), Codec.GZIP),
        ((("compression.type", "gzip"),), Codec.LZ4),
    ],
    ids=["keys are required", "another codec is wanted"],
)
@pytest.mark.parametrize("budget", [0, 1_000_000])
async def test_records_above_the_budget_are_unfolded_by_a_worker(
    tmp_path: Path,
    settings: tuple[tuple[str, str], ...],
    codec: Codec,
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_work, "BYTES_PER_ITERATION", budget)
    unfolded: list[int] = []
    decompress = compression.decompress

    def noting(*arguments: Any) -> Any:
        unfolded.append(threading.get_ident())
        return decompress(*arguments)

    monkeypatch.setattr(decode, "decompress", noting)
    batch = bytes(encode_batch([Record(0, 1_000, b"k", b"v" * 100, ())], codec=codec))
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1, (), settings),)))
        for expected in range(REQUESTS):
            answer = await client.call(request, 9)
            assert isinstance(answer, ProduceResponse)
            (stored,) = answer.responses[0].partition_responses
            assert (stored.error_code, stored.base_offset) == (0, expected)
    assert len(unfolded) >= REQUESTS
    ours = threading.get_ident()
    assert (ours in unfolded) is bool(budget)
