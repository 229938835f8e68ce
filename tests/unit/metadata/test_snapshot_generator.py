"""When a snapshot is taken, and that nobody waits for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import StorageError
from headrace.log.real_files import RealFileSystem
from headrace.metadata import snapshot_generator
from headrace.metadata.snapshots import list_snapshots
from headrace.node.system import ThreadExecutor
from tests.simulation.disk import SimulatedFileSystem
from tests.support.metadata import METADATA, MetadataNode

T = TypeVar("T")


class HeldExecutor:
    """Keeps every call until it is let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        self.calls += 1
        await self.gate.wait()
        return call()


async def create(node: MetadataNode[Any], *names: str) -> None:
    for name in names:
        await node.controller.submit(CreateTopics((TopicToCreate(name, 1, 1),)))


async def test_changes_are_committed_while_a_snapshot_is_taken_of_the_image_before() -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=8).join()
    held = node.snapshots._executor = HeldExecutor()
    await create(node, "a", "b", "c", "d")
    assert held.calls == 1
    offset = node.image.offset
    held.gate.set()
    await node.snapshots.stop()
    (snapshot,) = list_snapshots(node.disk, METADATA)
    assert 8 <= snapshot.end_offset < offset
    again = MetadataNode(node.disk.after_kill())
    assert again.load() == node.image


async def test_threads_append_and_delete_at_the_same_time(tmp_path: Path) -> None:
    node = MetadataNode(RealFileSystem(), data=str(tmp_path / "d"), snapshot_records_min=1)
    executor = node.quorum._executor = node.snapshots._executor = ThreadExecutor()
    await node.join()
    for number in range(40):
        await asyncio.gather(*(create(node, f"t{number}-{each}") for each in range(3)))
        topics = tuple(TopicToDelete(f"t{number}-{each}") for each in range(3))
        await node.controller.submit(DeleteTopics(topics))
    image = node.image
    await node.stop()
    kept = list_snapshots(RealFileSystem(), str(tmp_path / "d/__cluster_metadata-0"))
    assert len(kept) == 2
    assert kept[1].end_offset > 0
    again = MetadataNode(RealFileSystem(), data=str(tmp_path / "d"))
    assert again.load() == image
    executor.close()


async def test_a_log_of_many_bytes_is_reason_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    await create(node, "a")
    assert not list_snapshots(node.disk, METADATA)
    monkeypatch.setattr(snapshot_generator, "SNAPSHOT_BYTES_MAX", 1)
    await create(node, "b")
    assert list_snapshots(node.disk, METADATA)
    await node.stop()


async def test_the_bytes_of_earlier_lives_count_and_those_of_a_snapshot_do_not() -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=8).join()
    await create(node, "a", "b", "c", "d")
    await node.stop()
    (snapshot,) = list_snapshots(node.disk, METADATA)
    bytes_since = node.log.bytes_since_snapshot
    assert bytes_since > 0
    again = MetadataNode(node.disk.after_kill())
    again.load()
    assert again.log.bytes_since_snapshot == bytes_since
    assert again.log.snapshot_end_offset == snapshot.end_offset


async def test_a_snapshot_that_fails_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=8).join()

    def fails(_: object) -> None:
        raise StorageError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(node.log, "take_snapshot", fails)
        await create(node, "a", "b", "c", "d")
    assert "snapshot failed: error=no space" in caplog.text
    await create(node, "e")
    assert list_snapshots(node.disk, METADATA)
    await node.stop()
