"""Offsets of a group: what is refused beforehand, and what the coordinator says of the rest."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# Named twice, each time with a partition that is there and one that is not.
ASKED = [("t", [0, 5]), ("t", [7, 1])]
ANSWERED = [("t", [(5, UNKNOWN), (7, UNKNOWN), (0, ErrorCode.NONE), (1, ErrorCode.NONE)])]

Answered = list[tuple[str, list[tuple[int, int]]]]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RawClient]:
    async with running_node(tmp_path) as node, RawClient(*node.addresses["PLAINTEXT"]) as client:
        await node.controller.submit(CreateTopics((TopicToCreate("t", 2, 1),)))
        await client.call(FindCoordinatorRequest(key="g"), 3)
        yield client


def _commit(asked: list[tuple[str, list[int]]]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=3, committed_metadata=None
                    )
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ],
    )


def _delete(asked: list[tuple[str, list[int]]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for name, indexes in asked
        ],
    )


async def _call(
    client: RawClient, request: OffsetCommitRequest | OffsetDeleteRequest, version: int
) -> Answered:
    response = await client.call(request, version)
    assert isinstance(response, OffsetCommitResponse | OffsetDeleteResponse)
    return [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in response.topics
    ]


async def test_a_topic_is_answered_once_with_what_is_refused_before_the_rest(
    client: RawClient,
) -> None:
    """Or a client that goes through the topics by name would miss some of its partitions."""
    assert await _call(client, _commit(ASKED), 8) == ANSWERED
    assert await _call(client, _delete(ASKED), 0) == ANSWERED


async def test_where_nothing_is_left_nobody_is_asked(client: RawClient) -> None:
    asked = [("t", [-1]), ("nowhere", [0]), ("t", [2])]
    refused = [("t", [(-1, UNKNOWN), (2, UNKNOWN)]), ("nowhere", [(0, UNKNOWN)])]
    assert await _call(client, _commit(asked), 8) == refused
    assert await _call(client, _delete(asked), 0) == refused


async def test_all_that_was_asked_is_there(client: RawClient) -> None:
    asked = [("t", [1, 0])]
    answered = [("t", [(1, ErrorCode.NONE), (0, ErrorCode.NONE)])]
    assert await _call(client, _commit(asked), 8) == answered
    assert await _call(client, _delete(asked), 0) == answered
