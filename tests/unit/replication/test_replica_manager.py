"""What a node does with the partitions that an image gives it, leads or not."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image, PartitionRegistration, Topic
from headrace.protocol.records.header import parse_header
from headrace.replication.high_watermark_checkpoint import (
    REPLICATION_OFFSETS,
    HighWatermarkCheckpoint,
)
from headrace.replication.partition import FlushRequest, Partition
from headrace.replication.replica_manager import ReplicaManager
from headrace.testing.unsynced_files import UnsyncedFileSystem
from tests.simulation.loop import SeededRandomness
from tests.support.logs import ToldClock, batch

T = TypeVar("T")
ME, OTHER = NodeId(1), NodeId(2)
TOPIC_ID = UUID(int=7, version=4)


class Worker:
    """Runs a call when the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_work = False

    async def run(self, call: Callable[[], T]) -> T:
        await self.gate.wait()
        self.at_work = True
        try:
            return call()
        finally:
            self.at_work = False


def registration(
    leader: int = ME,
    epoch: int = 0,
    replicas: tuple[int, ...] = (ME,),
    partition_epoch: int = 0,
    isr: tuple[int, ...] | None = None,
) -> PartitionRegistration:
    in_sync = replicas if isr is None else isr
    return PartitionRegistration(NodeId(leader), epoch, partition_epoch, replicas, in_sync)


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
        self.worker = Worker()
        self.request_flush: FlushRequest | None = None
        self.open()

    def open(self) -> None:
        randomness = SeededRandomness(Random(1))
        self.directory = LogDirectory.open(
            self.files, str(self.path), ToldClock(), randomness, node_id=ME
        )
        config = BrokerConfig.from_static({"log.dirs": str(self.path)})
        self.replicas = ReplicaManager(
            self.directory,
            ME,
            config,
            self.worker,
            HighWatermarkCheckpoint(self.files, str(self.path)),
            request_flush=self.request_flush,
        )

    async def publish(self, image: Image) -> None:
        before, self.image = self.image, image
        await self.replicas.publish(before, image, TOUCHED)

    def directories(self) -> list[str]:
        return sorted(
            name
            for name in self.files.list_directory(str(self.path))
            if "-" in name and not name.endswith("-checkpoint")
        )

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


def append(partition: Partition, acks: int = 1) -> None:
    sent = batch()
    partition.append([(0, parse_header(sent))], memoryview(sent), acks)


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
    assert not node.replicas.offline
    assert "a mistake of one" in caplog.text


# A node that is not alone. Each of these went wrong while every replica behaved as a leader.


async def test_a_follower_begins_no_epoch_in_its_own_cache(node: Node) -> None:
    await node.publish(image_of(registration(OTHER, 5, (OTHER,)), registration(OTHER, 5, BOTH)))
    follower = node.replicas.require("t", 1)
    assert follower.log.end_offset_for_epoch(LeaderEpoch(5)) == (-1, -1)
    assert follower.leader_epoch == 5
    await node.publish(image_of(registration(OTHER, 5, (OTHER,)), registration(ME, 6, BOTH)))
    assert follower.log.end_offset_for_epoch(LeaderEpoch(6)) == (6, 0)


async def test_a_follower_takes_no_produce(node: Node) -> None:
    await node.publish(image_of(registration(OTHER, 5, (OTHER,)), registration(OTHER, 5, BOTH)))
    follower = node.replicas.require("t", 1)
    with pytest.raises(ApiError) as refused:
        append(follower)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (follower.log.log_end_offset, follower.high_watermark) == (0, 0)


async def test_a_deleted_topic_goes_though_only_a_later_partition_is_here(node: Node) -> None:
    await node.publish(image_of(registration(OTHER, 5, (OTHER,)), registration(ME, 5, BOTH)))
    led = node.replicas.require("t", 1)
    append(led)
    await node.publish(NOTHING)
    assert led.closed
    assert len(node.replicas) == 0
    assert [name for name in node.directories() if not name.endswith("-delete")] == []


async def test_a_replica_that_was_moved_away_is_deleted_here(node: Node) -> None:
    await node.publish(image_of(registration(ME, 5), registration(ME, 5, BOTH)))
    kept, moved = node.replicas.require("t", 0), node.replicas.require("t", 1)
    for partition in (kept, moved):
        append(partition)
    outcomes: list[ErrorCode] = []
    moved.when_committed(Offset(2), outcomes.append)
    elections = Elections()
    node.replicas.add_leadership_listener(elections)
    elections.taken()
    await node.publish(image_of(registration(ME, 5), registration(OTHER, 6, (OTHER,))))
    assert (kept.closed, moved.closed) == (False, True)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert elections.taken() == [("resigned", 1, 5)]
    with pytest.raises(ApiError) as refused:
        node.replicas.require("t", 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [name for name in node.directories() if not name.endswith("-delete")] == ["t-0"]
    # Should it come back, it begins with nothing.
    await node.publish(image_of(registration(ME, 5), registration(OTHER, 7, BOTH)))
    assert node.replicas.require("t", 1).log.log_end_offset == 0


async def test_an_image_that_has_not_caught_up_costs_no_data(node: Node) -> None:
    await node.publish(image_of(registration()))
    append(node.replicas.require("t", 0))
    node.directory.close()
    node.open()
    await node.replicas.load(NOTHING)
    node.image = NOTHING
    assert node.directories() == ["t-0"]
    await node.publish(image_of(registration()))
    assert node.replicas.require("t", 0).log.log_end_offset == 1


async def test_what_no_image_wants_here_is_put_aside_when_it_has_caught_up(node: Node) -> None:
    both = image_of(registration(), registration(OTHER, 0, BOTH))
    await node.publish(both)
    for partition in node.replicas:
        partition.become_leader(registration(ME, 1, BOTH))
        append(partition)
    node.directory.close()
    node.open()
    await node.replicas.load(image_of(registration(), registration(OTHER, 1, (OTHER,))))
    assert node.directories() == ["t-0", "t-1"]
    await node.replicas.rename_stray_directories()
    kept, stray = node.directories()
    assert kept == "t-0"
    assert stray.startswith("t-1.")
    assert stray.endswith("-stray")


# Logs are opened by a worker.


@pytest.mark.parametrize("loads", [False, True])
async def test_a_log_is_opened_in_a_worker_and_meanwhile_led_by_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch, loads: bool
) -> None:
    opened: list[bool] = []
    open_log = PartitionLog.open

    def watched(*arguments: Any, **named: Any) -> PartitionLog:
        opened.append(node.worker.at_work)
        return open_log(*arguments, **named)

    monkeypatch.setattr(PartitionLog, "open", watched)
    image = image_of(registration(), registration(OTHER, 0, BOTH))
    node.worker.gate.clear()
    bring_up = node.replicas.load(image) if loads else node.publish(image)
    opening = asyncio.create_task(bring_up)
    await asyncio.sleep(0)
    for index in range(2):
        with pytest.raises(ApiError) as refused:
            node.replicas.require("t", index)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.worker.gate.set()
    await opening
    assert opened == [True, True]
    assert len(node.replicas) == 2


async def test_a_log_that_cannot_be_opened_costs_the_others_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log = LogDirectory.open_log
    failing = {TopicPartition("t", 1)}

    def fail(self: LogDirectory, key: TopicPartition, *rest: Any) -> PartitionLog:
        if key in failing:
            raise StorageError("the disk is full")
        return open_log(self, key, *rest)

    monkeypatch.setattr(LogDirectory, "open_log", fail)
    await node.publish(image_of(*[registration()] * 3))
    assert [partition.id.partition for partition in node.replicas] == [0, 2]
    assert list(node.replicas.offline) == [TopicPartition("t", 1)]
    await node.replicas.retry_never_opened()
    with pytest.raises(ApiError) as refused:
        node.replicas.require("t", 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    failing.clear()
    await node.replicas.retry_never_opened()
    append(node.replicas.require("t", 1))
    assert not node.replicas.offline
    failing.add(TopicPartition("t", 3))
    await node.publish(image_of(*[registration()] * 4))
    await node.publish(NOTHING)
    assert not node.replicas.offline
    await node.replicas.retry_never_opened()


# What was known to be committed outlives a start.


async def restarted_with(node: Node, image: Image) -> Partition:
    node.directory.close()
    node.open()
    await node.replicas.load(image)
    node.image = image
    return node.replicas.require("t", 0)


async def test_a_follower_starts_with_the_high_watermark_that_was_written_down(
    node: Node,
) -> None:
    await node.publish(image_of(registration(ME, 1, BOTH, isr=(ME,))))
    leader = node.replicas.require("t", 0)
    append(leader)
    append(leader)
    await node.replicas.checkpoint_high_watermarks()
    append(leader)
    follower = await restarted_with(node, image_of(registration(OTHER, 2, BOTH)))
    assert (follower.high_watermark, follower.log.log_end_offset) == (2, 3)
    # Nor does a leader commit more before the others have told it how far they are.
    await node.publish(image_of(registration(ME, 3, BOTH)))
    assert follower.high_watermark == 2
    follower.fetched_by(OTHER, Offset(3))
    assert follower.high_watermark == 3


async def test_a_leader_alone_in_sync_shows_all_that_is_flushed_at_once(node: Node) -> None:
    await node.publish(image_of(registration()))
    append(node.replicas.require("t", 0))
    await node.replicas.checkpoint_high_watermarks()
    append(node.replicas.require("t", 0))
    node.request_flush = lambda _, __: None
    leader = await restarted_with(node, image_of(registration()))
    assert leader.high_watermark == 2


@pytest.mark.parametrize("known", [None, b"", b"\0" * 40, b"0\n1\nt 0 seven\n", b"0\n1\nt 0 99\n"])
@pytest.mark.parametrize("leader", BOTH)
async def test_a_wrong_or_missing_table_of_high_watermarks_costs_no_records(
    node: Node, known: bytes | None, leader: NodeId
) -> None:
    image = image_of(registration(ME, 1, BOTH, isr=(ME,)))
    await node.publish(image)
    for _ in range(3):
        append(node.replicas.require("t", 0))
    await node.replicas.checkpoint_high_watermarks()
    path = node.path / REPLICATION_OFFSETS
    assert path.read_bytes() == b"0\n1\nt 0 3\n"
    path.unlink()
    if known is not None:
        path.write_bytes(known)
    partition = await restarted_with(node, image_of(registration(leader, 2, BOTH, isr=(leader,))))
    assert partition.log.log_end_offset == 3
    all_of_it = leader == ME or known == b"0\n1\nt 0 99\n"
    assert partition.high_watermark == (3 if all_of_it else 0)
    await node.replicas.checkpoint_high_watermarks()
    assert path.read_bytes() == b"0\n1\nt 0 %d\n" % partition.high_watermark


async def test_what_was_known_of_an_offline_partition_is_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.publish(image_of(registration()))
    append(node.replicas.require("t", 0))
    await node.replicas.checkpoint_high_watermarks()
    node.directory.close()
    node.open()

    def fail(*_: Any) -> PartitionLog:
        raise StorageError("not to be read")

    monkeypatch.setattr(LogDirectory, "open_log", fail)
    await node.replicas.load(image_of(registration()))
    await node.replicas.checkpoint_high_watermarks()
    assert (node.path / REPLICATION_OFFSETS).read_bytes() == b"0\n1\nt 0 1\n"


async def test_a_change_of_one_partition_is_no_work_for_the_others_of_its_topic(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.publish(image_of(*[registration(ME, 1, BOTH)] * 4))
    touched: list[int] = []
    become_leader = Partition.become_leader

    def watched(self: Partition, given: PartitionRegistration) -> None:
        touched.append(self.id.partition)
        become_leader(self, given)

    monkeypatch.setattr(Partition, "become_leader", watched)
    smaller = registration(ME, 1, BOTH, partition_epoch=1, isr=(ME,))
    three = [registration(ME, 1, BOTH)] * 3
    await node.publish(image_of(three[0], smaller, *three[:2]))
    assert touched == [1]
    # Nor is one forgotten that was closed and opened in between.
    await node.publish(NOTHING)
    await node.publish(image_of(three[0], smaller, *three[:2]))
    assert touched == [1, 0, 1, 2, 3]
