"""Fetches of what is in no page cache: the event loop never waits for the disk."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.broker.handlers import fetch as fetching
from headrace.log.page_cache import CACHED_READS_ONLY, may_read_disk
from headrace.log.real_files import RealFile
from headrace.node.system import WORKERS
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.fetch import FetchResponse
from tests.support.cold_disk import ColdDisk, cold_disk
from tests.support.nodes import running_node
from tests.support.raw_client import RawClient
from tests.unit.broker.test_delayed_fetch import (
    BATCH,
    VERSION,
    create,
    fetch,
    fetch_is_waiting,
    produce,
    received,
)


@pytest.fixture
def disk() -> Iterator[ColdDisk]:
    with cold_disk("t") as cold:
        yield cold


async def test_others_are_answered_while_a_fetch_waits_for_the_disk(
    tmp_path: Path, disk: ColdDisk
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as reader,
        RawClient(*node.addresses["PLAINTEXT"]) as other,
    ):
        await create(node)
        for partition in (0, 1):
            for _ in range(3):
                await produce(other, partition)
        disk.cool_down(node)
        reader.send(fetch((0, 1), (1, 2), (2, 0)), VERSION)
        await other.call(ApiVersionsRequest(), 0)
        await produce(other, 0)
        disk.is_well.set()
        found = await received(reader)
        sizes = [len(data.records or b"") for data in found]
        assert (sizes, disk.reads_of_the_loop) == ([3 * len(BATCH), len(BATCH), 0], 0)


async def test_flushes_find_a_worker_however_many_read_what_is_cold(
    tmp_path: Path, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More readers than there are threads, and the disk answers none of them."""
    monkeypatch.setattr(RealFile, "read_cached", lambda *_: 0)
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as writer,
        AsyncExitStack() as readers,
    ):
        await create(node)
        for _ in range(3):
            await produce(writer, 0)
        disk.cool_down(node)
        reading = []
        for number in range(WORKERS + 4):
            reader = await readers.enter_async_context(RawClient(*node.addresses["PLAINTEXT"]))
            reader.send(fetch((0, number % 3)), VERSION)
            reading.append(reader)
        await produce(writer, 1)
        disk.is_well.set()
        for reader in reading:
            assert (await received(reader))[0].records


async def test_a_fetch_that_waited_for_records_finds_them_on_a_cold_disk(
    tmp_path: Path, disk: ColdDisk
) -> None:
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as reader,
        RawClient(*node.addresses["PLAINTEXT"]) as writer,
    ):
        await create(node)
        for _ in range(3):
            await produce(writer, 0)
        reader.send(fetch((0, 1), min_bytes=3 * len(BATCH), max_wait_ms=60_000), VERSION)
        await fetch_is_waiting(node)
        disk.cool_down(node)
        disk.is_well.set()
        await produce(writer, 0)
        (data,) = await received(reader)
        assert (len(data.records or b""), disk.reads_of_the_loop) == (3 * len(BATCH), 0)


async def test_where_memory_is_too_short_the_disk_is_waited_for(
    tmp_path: Path, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "CACHE_ROUNDS_MAX", 3)
    async with (
        running_node(tmp_path) as node,
        RawClient(*node.addresses["PLAINTEXT"]) as client,
    ):
        await create(node)
        for _ in range(3):
            await produce(client, 0)
        disk.forgets = True
        disk.cool_down(node)
        disk.is_well.set()
        client.send(fetch((0, 1)), VERSION)
        _, response = await asyncio.wait_for(client.receive(FetchResponse, VERSION), 10)
        (data,) = response.responses[0].partitions
        assert len(data.records or b"") == 2 * len(BATCH)
        assert disk.reads_of_the_loop > 0


def test_nothing_is_at_hand_for_ever() -> None:
    with CACHED_READS_ONLY:
        assert not may_read_disk()
    assert may_read_disk()
