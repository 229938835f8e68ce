"""What a leader says of its end before it knows what the leader before it had committed."""

from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.core.ids import NodeId, Offset
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.records.header import parse_header
from tests.support.logs import batch
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

LATEST, LONG_AFTER = -1, 2**60
FOLLOWER = NodeId(9)


@pytest.mark.parametrize(
    ("version", "error"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
@pytest.mark.parametrize("asked", [LATEST, LONG_AFTER])
async def test_the_end_is_not_told_before_it_is_known(
    tmp_path: Path, version: int, error: ErrorCode, asked: int
) -> None:
    """Or it would be seen to move back (KIP-207)."""
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1),)))
        partition = node.services.replicas.require("t", 0)
        registered = node.services.metadata.image.topics["t"].partitions[0]
        both = (registered.leader, FOLLOWER)
        partition.become_leader(registered._replace(replicas=both, isr=both))
        sent = batch()
        partition.append([(0, parse_header(sent))], memoryview(sent), 1)
        newly = registered._replace(replicas=both, isr=both, leader_epoch=5)
        partition.become_leader(newly)
        named = ListOffsetsPartition(partition_index=0, timestamp=asked)
        topic = ListOffsetsTopic(name="t", partitions=[named])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        codes = []
        for fetched in (0, 1):
            partition.fetched_by(FOLLOWER, Offset(fetched))
            response = await client.call(request, version)
            assert isinstance(response, ListOffsetsResponse)
            codes.append(response.topics[0].partitions[0].error_code)
        assert codes == [error, ErrorCode.NONE]
