"""What one caller asks does not hold up what others ask, where order means nothing to them."""

import asyncio
from pathlib import Path

import pytest

from headrace.broker.handlers import list_offsets
from headrace.client import LATEST, NewTopic, TopicPartition
from headrace.gateway import OutRecord
from tests.support.gateways import local_gateway
from tests.support.nodes import running_node


async def test_records_are_written_while_an_offset_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def wait_until_flushed(*_: object) -> None:
        asked.set()
        await may_go_on.wait()

    monkeypatch.setattr(list_offsets, "wait_until_flushed", wait_until_flushed)
    async with running_node(tmp_path) as node, local_gateway(node) as gateway:
        await gateway.admin.create_topics([NewTopic("orders", 1)])
        looking = asyncio.create_task(gateway.offset_of(TopicPartition("orders", 0), LATEST))
        await asked.wait()
        async with asyncio.timeout(10):
            [written] = await gateway.produce("orders", [OutRecord(b"v")])
        assert not looking.done()
        may_go_on.set()
        assert (written.offset, await looking) == (0, 1)
