"""Deleting topics where the configuration forbids it: what clients of each version are told."""

from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID
from headrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
async def test_a_client_is_told_that_topics_are_not_deleted_here(
    tmp_path: Path, version: int, expected: ErrorCode
) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t", topic_id=NO_TOPIC_ID)], topic_names=["t"], timeout_ms=1
    )
    async with (
        running_node(tmp_path, delete_topic_enable="false") as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await node.controller.submit(CreateTopics((TopicToCreate("t"),)))
        response = await client.call(request, version)
        assert "t" in node.services.metadata.image.topics
    assert isinstance(response, DeleteTopicsResponse)
    [answered] = response.responses
    assert (answered.name, answered.error_code) == ("t", expected)
    assert answered.error_message is None
