"""What thousands of partitions cost: in steps, so that the answer is the same on any machine.

A step is a call of any function, ours or the interpreter's own.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TypeVar
from uuid import UUID

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.files import Buffer
from headrace.core.ids import NodeId
from headrace.log.directory import LogDirectory
from headrace.metadata.delta import Delta
from headrace.metadata.image import (
    Image,
    PartitionRegistration,
    Topic,
)
from headrace.protocol.records.header import parse_header
from headrace.replication.high_watermark_checkpoint import HighWatermarkCheckpoint
from headrace.replication.replica_manager import ReplicaManager
from headrace.testing.unsynced_files import UnsyncedFileSystem
from tests.simulation.loop import SeededRandomness
from tests.support.logs import ToldClock, batch

T = TypeVar("T")
NODE = NodeId(0)
FEW, MANY = 200, 800
NAME = "t"
CONFIGS = ConfigResource(ConfigResourceType.TOPIC, NAME)
OUR_CONFIGS = ConfigResource(ConfigResourceType.BROKER, str(NODE))
CHANGES = ("create", "load", "reconfigure topic", "reconfigure broker", "delete", "create again")


class Steps:
    """Counts those of the event loop's thread, as a whole and without a pause for others."""

    def __init__(self) -> None:
        self.total = 0
        self.held = 0
        self.held_max = 0

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.total += 1
            self.held += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.turn_ended()

    def turn_ended(self) -> None:
        self.held_max = max(self.held_max, self.held)
        self.held = 0

    async def another_client(self) -> None:
        while True:
            self.turn_ended()
            await asyncio.sleep(0)


class WatchedFiles(UnsyncedFileSystem):
    """Changes of the disk are for a worker while a change of the metadata is followed."""

    for_workers_only = False

    def write_file(self, path: str, data: Buffer) -> None:
        assert not self.for_workers_only, path
        super().write_file(path, data)

    def rename(self, old: str, new: str) -> None:
        assert not self.for_workers_only, old
        super().rename(old, new)


class Worker:
    """Runs calls at once; their steps count, but hold up nobody."""

    def __init__(self, steps: Steps, files: WatchedFiles) -> None:
        self._steps = steps
        self._files = files

    async def run(self, call: Callable[[], T]) -> T:
        self._steps.turn_ended()
        self._files.for_workers_only = False
        try:
            return call()
        finally:
            self._files.for_workers_only = True
            self._steps.held = 0


def image(
    partitions: int, id: int, configs: dict[ConfigResource, dict[str, str]] | None = None
) -> Image:
    registration = PartitionRegistration(NODE, 0, 0, (NODE,), (NODE,))
    topic = Topic(NAME, UUID(int=id, version=4), (registration,) * partitions)
    topics = {NAME: topic} if partitions else {}
    return Image("c", topics=topics, topics_by_id={topic.id: topic}, configs=configs or {})


class Broker:
    """One data directory, opened as often as wanted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = WatchedFiles()
        self.steps = Steps()
        self.start()

    def start(self) -> None:
        randomness = SeededRandomness(Random(1))
        self.directory = LogDirectory.open(
            self._files, str(self._path), ToldClock(), randomness, node_id=NODE
        )
        config = BrokerConfig.from_static({"log.dirs": str(self._path)})
        self.replicas = ReplicaManager(
            self.directory,
            NODE,
            config,
            Worker(self.steps, self._files),
            HighWatermarkCheckpoint(self._files, str(self._path)),
            request_flush=None,
        )

    async def follow(self, before: Image, after: Image, delta: Delta) -> None:
        other = asyncio.get_running_loop().create_task(self.steps.another_client())
        await asyncio.sleep(0)
        self._files.for_workers_only = True
        with self.steps.counted():
            await self.replicas.publish(before, after, delta)
        self._files.for_workers_only = False
        other.cancel()

    def write_everywhere(self) -> None:
        for partition in self.replicas:
            sent = batch()
            partition.append([(0, parse_header(sent))], memoryview(sent), 1)

    def taken(self) -> tuple[int, int]:
        """Steps since the last look: in all, and the most in one piece."""
        steps = self.steps
        found = steps.total, steps.held_max
        steps.total = steps.held_max = steps.held = 0
        return found

    def stop(self) -> None:
        self.directory.close()

    def close(self) -> None:
        self.directory.release_lock()
        self._files.close()


async def costs(path: Path, partitions: int) -> dict[str, tuple[int, int]]:
    found = {}
    broker = Broker(path)
    nothing, all_of_it = image(0, 1), image(partitions, 1)
    topics = Delta(topics=frozenset([NAME]))
    await broker.follow(nothing, all_of_it, topics)
    found["create"] = broker.taken()
    broker.write_everywhere()
    broker.stop()
    broker.start()
    with broker.steps.counted():
        await broker.replicas.load(all_of_it)
    found["load"] = broker.taken()
    broker.write_everywhere()
    changed = image(partitions, 1, configs={CONFIGS: {"retention.ms": "1000"}})
    await broker.follow(all_of_it, changed, Delta(configs=frozenset([CONFIGS])))
    found["reconfigure topic"] = broker.taken()
    ours = image(partitions, 1, configs={OUR_CONFIGS: {"log.retention.ms": "1000"}})
    await broker.follow(changed, ours, Delta(configs=frozenset([OUR_CONFIGS])))
    found["reconfigure broker"] = broker.taken()
    await broker.follow(ours, nothing, topics)
    found["delete"] = broker.taken()
    assert not any(
        name.startswith(f"{NAME}-0")
        for name in broker._files.list_directory(str(path))
        if not name.endswith("-delete")
    )
    await broker.follow(nothing, image(partitions, 2), topics)
    found["create again"] = broker.taken()
    assert len(broker.replicas) == partitions
    broker.close()
    return found


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    few = asyncio.run(costs(tmp_path_factory.mktemp("few"), FEW))
    return few, asyncio.run(costs(tmp_path_factory.mktemp("many"), MANY))


@pytest.mark.parametrize("change", CHANGES)
def test_each_partition_costs_the_same_however_many_there_are(
    measured: tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]], change: str
) -> None:
    few, many = measured
    assert many[change][0] / MANY <= 1.2 * few[change][0] / FEW


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "load"])
def test_other_clients_wait_no_longer_where_there_are_more_partitions(
    measured: tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]], change: str
) -> None:
    """Loading is not among them: nobody is served before it."""
    few, many = measured
    assert many[change][1] <= 1.2 * few[change][1]
    assert many[change][1] <= many[change][0] / 10
