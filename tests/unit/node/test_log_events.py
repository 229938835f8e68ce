"""State changes leave a line with topic, partition and epoch."""

import logging
from pathlib import Path

import pytest

from headrace.client import AsyncClient, NewTopic
from tests.support.nodes import running_node


async def test_what_becomes_of_a_topic_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.replication")
    async with running_node(tmp_path) as node:
        address = "{}:{}".format(*node.addresses["PLAINTEXT"])
        async with AsyncClient(address) as client:
            await client.admin.create_topics([NewTopic("t", partitions=2)])
            await client.admin.create_partitions({"t": 3})
            await client.admin.delete_topics(["t"])
    lines = [line for line in caplog.messages if "topic=t " in line]
    assert lines == [
        "topic created: topic=t partitions=2",
        "partitions added: topic=t partitions=3",
        "topic deleted: topic=t partitions=3",
    ]


async def test_a_new_leader_epoch_is_told_at_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headrace.replication")
    for _ in range(2):
        async with running_node(tmp_path) as node:
            address = "{}:{}".format(*node.addresses["PLAINTEXT"])
            async with AsyncClient(address) as client:
                await client.topic("t", create=True)
    lines = [line for line in caplog.messages if line.startswith("leading: ")]
    epochs = [int(line.partition("epoch=")[2].split()[0]) for line in lines]
    assert all("partition=t-0" in line for line in lines)
    assert (min(epochs), max(epochs)) == (0, 1), "each start begins a new epoch"
