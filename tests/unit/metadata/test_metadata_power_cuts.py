"""Cut the power after every single step on the disk: what was answered is still there.

The script is short and uses everything: a first start, changes, snapshots and the deletion of what
two of them hold, a clean stop, a second start and a third after a kill. What is there is there
twice: it does not take the newest snapshot to find it.
"""

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import HeadraceError
from headrace.metadata import snapshots
from headrace.metadata.image import Image
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import (
    KEEP_CONTENTS,
    KEEP_EVERYTHING,
    KEEP_NAMES,
    LOSE_EVERYTHING,
    Seeded,
    Survival,
    Torn,
)
from tests.support.metadata import METADATA, MetadataNode

T = TypeVar("T")

SNAPSHOT_RECORDS_MIN = 9


class LateExecutor:
    """Runs a call some turns of the event loop after it was asked to."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def run(self, call: Callable[[], T]) -> T:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return call()


class Run:
    """One run of the script that remembers the disk after every step, and what was promised."""

    def __init__(
        self, skipped_sync_sites: frozenset[str] = frozenset(), *, snapshot_turns: int = 0
    ) -> None:
        """`snapshot_turns`: of the loop, that the log goes on before a snapshot is begun."""
        self._snapshot_turns = snapshot_turns
        self._skipped = set(skipped_sync_sites)
        self.operations: list[Operation] = []
        self.images: dict[int, Image] = {}
        self.crashes: list[tuple[Operation, SimulatedFileSystem, int]] = []
        self._answered = -1

    async def play(self) -> "Run":
        disk = self._watched(SimulatedFileSystem())
        for life, names in enumerate(("abcde", "fghij", "kl")):
            node = MetadataNode(disk, seed=life, snapshot_records_min=SNAPSHOT_RECORDS_MIN)
            node.observe(lambda _old, new, _delta: self._remember(new))
            node.snapshots._executor = LateExecutor(self._snapshot_turns)
            await node.join()
            self._answer(node.image)
            for name in names:
                await node.controller.submit(CreateTopics((TopicToCreate(name, 2, 1),)))
                self._answer(node.image)
            await node.controller.submit(DeleteTopics((TopicToDelete(names[0]),)))
            self._answer(node.image)
            if life == 0:
                await node.stop()
            else:
                node.kill()
            disk = self._watched(disk.after_kill())
        return self

    def _watched(self, disk: SimulatedFileSystem) -> SimulatedFileSystem:
        def look(operation: Operation) -> None:
            self.operations.append(operation)
            self.crashes.append((operation, disk.copy(), self._answered))

        disk.observer = look
        disk.faults.skipped_sync_sites = self._skipped
        return disk

    @property
    def has_tail(self) -> bool:
        """Whether a snapshot was written while there was more in the log."""
        return any(
            answered > snapshot.end_offset
            for operation, disk, answered in self.crashes
            if operation.kind == "rename" and snapshots.SUFFIX in operation.path
            for snapshot in snapshots.list_snapshots(disk, METADATA)[:1]
        )

    def _remember(self, image: Image) -> None:
        self.images[image.offset] = image

    def _answer(self, image: Image) -> None:
        self._remember(image)
        self._answered = image.offset

    def violations(self, survivals: list[Survival]) -> Iterator[str]:
        for operation, disk, answered in self.crashes:
            for survival in survivals:
                after = disk.copy().after_power_cut(survival)
                problem = asyncio.run(self._problem(after, answered))
                if problem is not None:
                    yield f"{type(survival).__name__} after {operation}: {problem}"

    async def _problem(self, disk: SimulatedFileSystem, answered: int) -> str | None:
        without_newest = disk.copy()
        if disk.exists(METADATA):
            for snapshot in snapshots.list_snapshots(disk, METADATA)[:1]:
                without_newest.remove(f"{METADATA}/{snapshot.file_name}")
        try:
            found = _load(disk)
            if found.offset < answered:
                return f"offset {answered} was answered, {found.offset} is there"
            if found != self.images.get(found.offset, found):
                return f"another image at offset {found.offset}"
            if _load(without_newest) != found:
                return "the snapshot before the newest and the log give another image"
            # What the restart builds on must hold too: a second cut loses none of it.
            node = await MetadataNode(disk.after_kill(), seed=99).start()
            node.kill()
            again = _load(node.disk.after_power_cut(LOSE_EVERYTHING))
            if again.topics != found.topics or again.offset <= found.offset:
                return "a second power cut took back what the restart had found"
        except HeadraceError as error:
            return f"refused to start: {error}"
        return None


def _load(disk: SimulatedFileSystem) -> Image:
    node = MetadataNode(disk, seed=98)
    return node.load()


def _survivals(seed: int) -> list[Survival]:
    corners: list[Survival] = [LOSE_EVERYTHING, KEEP_EVERYTHING, KEEP_NAMES, KEEP_CONTENTS]
    return [*corners, Torn(0), Torn(0xFF), Seeded(Random(seed))]


@pytest.mark.parametrize("snapshot_turns", [0, 20])
def test_no_power_cut_takes_back_an_answered_change(snapshot_turns: int) -> None:
    run = asyncio.run(Run(snapshot_turns=snapshot_turns).play())
    assert run.has_tail == (snapshot_turns > 0)
    assert len(run.crashes) > 100
    assert {"rename", "remove", "sync", "sync_directory"} <= {o.kind for o in run.operations}
    assert list(run.violations(_survivals(1))) == []


@pytest.mark.parametrize(
    ("kind", "path_end"),
    [
        ("sync", ".log"),
        ("sync", ".tmp"),
        ("sync_directory", "/__cluster_metadata-0"),
        ("sync_directory", "/data"),
    ],
)
def test_the_check_notices_missing_syncs(kind: str, path_end: str) -> None:
    """Of the log's contents, of replaced files, of names in the directory, and of its own name."""
    sites = {
        operation.site
        for operation in asyncio.run(Run().play()).operations
        if operation.kind == kind and operation.path.endswith(path_end)
    }
    assert sites
    run = asyncio.run(Run(frozenset(sites)).play())
    assert next(run.violations(_survivals(1)), None) is not None
