"""What is committed while a broker starts reaches it all the same."""

from pathlib import Path

import pytest

from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.metadata.image import Image
from headrace.node.node import Node
from headrace.replication.replica_manager import ReplicaManager
from tests.support.nodes import running_node


async def test_a_topic_that_is_deleted_while_logs_are_opened_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node:
        topics = tuple(TopicToCreate(name, 1, 1) for name in ("stays", "goes"))
        await node.controller.submit(CreateTopics(topics))
    starting: list[Node] = []
    start, load = Node.start, ReplicaManager.load

    async def note_and_start(node: Node) -> None:
        starting.append(node)
        await start(node)

    async def load_while_a_topic_is_deleted(replicas: ReplicaManager, image: Image) -> None:
        await load(replicas, image)
        await starting[0].controller.submit(DeleteTopics((TopicToDelete("goes"),)))

    monkeypatch.setattr(Node, "start", note_and_start)
    monkeypatch.setattr(ReplicaManager, "load", load_while_a_topic_is_deleted)
    async with running_node(tmp_path) as node:
        assert [partition.id.topic for partition in node.services.replicas] == ["stays"]
