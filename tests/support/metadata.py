"""A controller on a simulated disk, for tests of cluster metadata."""

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar
from uuid import UUID

from headrace.controller.commands import (
    BumpLeaderEpochs,
    RegisterBroker,
    UnfenceBroker,
)
from headrace.controller.controller import Controller
from headrace.controller.decision_context import DecisionContext
from headrace.controller.machine import MetadataMachine
from headrace.core.broker_configs import BrokerConfig
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.log.directory import LogDirectory
from headrace.metadata.cache import MetadataCache
from headrace.metadata.image import BrokerEndpoint, BrokerRegistration, Image
from headrace.metadata.loader import MetadataLoader
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.publisher import MetadataPublisher, MetadataPublishers, PublisherOrder
from headrace.metadata.quorum import ReplicaKey
from headrace.metadata.records import bootstrap_records, register_broker_record
from headrace.metadata.snapshot_generator import SnapshotGenerator
from headrace.metadata.sole_voter_quorum import SoleVoterQuorum
from tests.simulation.loop import SeededRandomness

T = TypeVar("T")
Disk = TypeVar("Disk", bound=FileSystem)

NODE = NodeId(0)
DATA = "/data"
METADATA = f"{DATA}/__cluster_metadata-0"
ENDPOINTS = (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092),)
DIRECTORY = UUID(int=7)


class StandingClock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> float:
        return self.time_ms


class InlineExecutor:
    """Runs the call where it stands; counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        self.calls += 1
        return call()


class MetadataNode(Generic[Disk]):
    """One start of the controller on a disk; make another to restart."""

    def __init__(
        self,
        disk: Disk,
        *,
        data: str = DATA,
        seed: int = 1,
        snapshot_records_min: int = 1_000_000,
        config: BrokerConfig | None = None,
    ) -> None:
        self.disk = disk
        self.executor = InlineExecutor()
        self.randomness = SeededRandomness(Random(seed))
        clock = StandingClock()
        self.metadata = MetadataCache()
        self.directory = LogDirectory.open(disk, data, clock, self.randomness, node_id=NODE)
        self.publishers = MetadataPublishers(self.metadata)
        self.log = MetadataLog(disk, self.directory, clock)
        self.snapshots = SnapshotGenerator(
            self.log, self.executor, records_min=snapshot_records_min
        )
        self.publishers.add(PublisherOrder.SNAPSHOTS, self.snapshots.publish)
        voter = ReplicaKey(NODE, self.directory.meta_properties.directory_id)
        self.quorum = SoleVoterQuorum(self.log, voter, self.executor)
        self.controller = Controller(
            config or BrokerConfig(),
            self.directory.cluster_id,
            self.quorum,
            self.publishers,
            randomness=self.randomness,
            executor=self.executor,
        )

    @property
    def image(self) -> Image:
        return self.controller.image

    def load(self) -> Image:
        """What a start would find, without one."""
        loader = MetadataLoader(self.image)
        loader.load_snapshot(self.log.open(self.image))
        loader.replay(self.log.read(loader.end_offset, self.log.end_offset))
        return loader.image

    async def start(self) -> "MetadataNode[Disk]":
        await self.controller.start()
        return self

    async def join(self) -> "MetadataNode[Disk]":
        """Start, and introduce the broker as a node does."""
        await self.start()
        await self.controller.submit(self.registration())
        await self.controller.submit(UnfenceBroker(NODE))
        await self.controller.submit(BumpLeaderEpochs(NODE))
        return self

    def observe(self, publisher: MetadataPublisher) -> None:
        """Publish what changes from now on to `publisher`, behind all others."""
        self.publishers.add(PublisherOrder.CONFIGS, publisher, seen=self.image)

    def registration(self) -> RegisterBroker:
        return RegisterBroker(NODE, self.randomness.uuid(), ENDPOINTS, (DIRECTORY,))

    async def stop(self) -> None:
        await self.controller.stop()
        await self.snapshots.stop()
        self.directory.close()

    def kill(self) -> None:
        """End as a killed process would: nothing is written any more, the lock is free."""
        self.controller.kill()
        self.snapshots.kill()
        self.directory.release_lock()


def machine(config: BrokerConfig | None = None, seed: int = 1) -> MetadataMachine:
    return MetadataMachine(
        DecisionContext(config or BrokerConfig(), SeededRandomness(Random(seed)))
    )


def cluster(*broker_ids: int, fenced: tuple[int, ...] = ()) -> Image:
    """An image with these brokers and no topics."""
    brokers = [
        register_broker_record(
            BrokerRegistration(
                id=NodeId(id),
                epoch=index,
                incarnation_id=UUID(int=id + 1),
                endpoints=ENDPOINTS,
                features={},
                fenced=id in fenced,
                directories=(DIRECTORY,),
            )
        )
        for index, id in enumerate(broker_ids)
    ]
    return machine().apply(Image("a-cluster"), [*bootstrap_records(), *brokers])
