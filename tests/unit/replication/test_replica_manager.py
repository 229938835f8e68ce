"""What a node does with the partitions that an image gives it, leads or not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.ids import LeaderEpoch, NodeId, TopicPartition
from headrace.log.directory import LogDirectory
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image, PartitionRegistration, Topic
from headrace.replication.replica_manager import ReplicaManager
from headrace.testing.unsynced_files import UnsyncedFileSystem
from tests.simulation.loop import SeededRandomness
from tests.support.logs import ToldClock

T = TypeVar("T")
ME, OTHER = NodeId(1), NodeId(2)
TOPIC_ID = UUID(int=7, version=4)


class Worker:
    async def run(self, call: Callable[[], T]) -> T:
        return call()


def registration(
    leader: int = ME, epoch: int = 0, replicas: tuple[int, ...] = (ME,), partition_epoch: int = 0
) -> PartitionRegistration:
    return PartitionRegistration(NodeId(leader), epoch, partition_epoch, replicas, replicas)


def image_of(*partitions: PartitionRegistration, name: str = "t", id: UUID = TOPIC_ID) -> Image:
    topic = Topic(name, id, partitions)
    return Image("c", topics={name: topic}, topics_by_id={id: topic})


NOTHING = Image("c")
TOUCHED = Delta(topics=frozenset(["t"]))


class Node:
    """One node's partitions, given one image after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = UnsyncedFileSystem()
        self.image = NOTHING
        self.open()

    def open(self) -> None:
        randomness = SeededRandomness(Random(1))
        self.directory = LogDirectory.open(
            self.files, str(self.path), ToldClock(), randomness, node_id=ME
        )
        config = BrokerConfig.from_static({"log.dirs": str(self.path)})
        self.replicas = ReplicaManager(self.directory, ME, config, Worker(), request_flush=None)

    async def publish(self, image: Image) -> None:
        before, self.image = self.image, image
        await self.replicas.publish(before, image, TOUCHED)

    def close(self) -> None:
        self.directory.release_lock()
        self.files.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.close()


class Elections:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def on_elected(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        self.heard.append(("elected", partition.partition, leader_epoch))

    def on_resigned(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        self.heard.append(("resigned", partition.partition, leader_epoch))

    def taken(self) -> list[tuple[str, int, int]]:
        heard, self.heard = self.heard, []
        return heard


BOTH = (ME, OTHER)


async def test_a_listener_hears_of_each_leadership_that_begins_and_ends(node: Node) -> None:
    elections = Elections()
    node.replicas.add_leadership_listener(elections)
    await node.publish(image_of(registration(ME, 3, BOTH), registration(OTHER, 0, BOTH)))
    assert elections.taken() == [("elected", 0, 3)]
    await node.publish(image_of(registration(OTHER, 4, BOTH), registration(ME, 1, BOTH)))
    assert elections.taken() == [("resigned", 0, 3), ("elected", 1, 1)]
    await node.publish(image_of(registration(OTHER, 4, BOTH), registration(ME, 2, BOTH)))
    assert elections.taken() == [("elected", 1, 2)]
    await node.publish(NOTHING)
    assert elections.taken() == [("resigned", 1, 2)]


async def test_a_change_of_the_isr_alone_is_no_election(node: Node) -> None:
    await node.publish(image_of(registration(ME, 3, BOTH)))
    elections = Elections()
    node.replicas.add_leadership_listener(elections)
    assert elections.taken() == [("elected", 0, 3)], "who comes late hears of what is led already"
    await node.publish(image_of(registration(ME, 3, BOTH, partition_epoch=1)._replace(isr=(ME,))))
    assert elections.taken() == []


async def test_a_listener_that_fails_costs_the_others_nothing(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Elections):
        def on_elected(self, _: TopicPartition, __: LeaderEpoch) -> None:
            raise RuntimeError("a mistake of one")

    elections = Elections()
    for listener in (Failing(), elections):
        node.replicas.add_leadership_listener(listener)
    await node.publish(image_of(registration()))
    assert elections.taken() == [("elected", 0, 0)]
    assert node.replicas.offline == ()
    assert "a mistake of one" in caplog.text
