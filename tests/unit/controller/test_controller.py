"""The driver: what is flushed before a reply, shared by replies, and left undone on failure."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from headrace.controller.commands import (
    AllocateProducerIds,
    BumpLeaderEpochs,
    CreateTopics,
    DeleteTopics,
    ProducerIdBlock,
    TopicToCreate,
    TopicToDelete,
    UnfenceBroker,
)
from headrace.core.errors import ApiError, ErrorCode, StorageError, StorageUnavailable
from headrace.core.ids import NodeId
from headrace.metadata import sole_voter_quorum
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.support.metadata import METADATA, NODE, MetadataNode

T = TypeVar("T")


def create(*names: str, partitions: int = 1) -> CreateTopics:
    return CreateTopics(tuple(TopicToCreate(name, partitions, 1) for name in names))


class HeldExecutor:
    """Keeps every call until it is let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        await self.gate.wait()
        self.calls += 1
        return call()


async def test_a_new_cluster_starts_with_its_metadata_version() -> None:
    node = await MetadataNode(SimulatedFileSystem()).start()
    assert node.image.features == {"metadata.version": 30}
    assert node.image.cluster_id == node.directory.cluster_id
    assert node.image.epoch == 1
    await node.stop()


async def test_what_was_submitted_is_in_the_image_when_the_reply_comes() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    (answer,) = await node.controller.submit(create("t", partitions=3))
    assert answer.error is ErrorCode.NONE
    assert len(node.image.topics["t"].partitions) == 3
    await node.stop()


async def test_neither_reply_nor_image_runs_ahead_of_the_flush() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    held = HeldExecutor()
    node.quorum._executor = held
    waiting = asyncio.ensure_future(node.controller.submit(create("t")))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert not node.image.topics
    held.gate.set()
    await waiting
    assert "t" in node.image.topics
    await node.stop()


async def test_commands_submitted_together_share_one_flush_and_see_each_other() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    calls = node.executor.calls
    _, created, _, *blocks = await asyncio.gather(
        node.controller.submit(create("a")),
        node.controller.submit(create("a", "b")),
        node.controller.submit(DeleteTopics((TopicToDelete("a"),))),
        node.controller.submit(AllocateProducerIds(NODE)),
        node.controller.submit(AllocateProducerIds(NODE)),
    )
    assert node.executor.calls == calls + 1
    assert [answer.error for answer in created] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    assert set(node.image.topics) == {"b"}
    assert blocks == [ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000)]
    await node.stop()


async def test_a_command_that_changes_nothing_touches_neither_log_nor_disk() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    calls, operations, image = node.executor.calls, len(node.disk.operations), node.image
    await node.controller.submit(UnfenceBroker(NODE))
    await node.controller.submit(CreateTopics((TopicToCreate("t", 1, 1),), validate_only=True))
    await node.controller.submit(create(".."))
    assert node.executor.calls == calls
    assert len(node.disk.operations) == operations
    assert node.image is image
    await node.stop()


async def test_a_command_refused_as_a_whole_leaves_its_neighbours_alone() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    refused, fine = await asyncio.gather(
        node.controller.submit(UnfenceBroker(NodeId(9))),
        node.controller.submit(create("t")),
        return_exceptions=True,
    )
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert not isinstance(fine, BaseException)
    assert "t" in node.image.topics
    await node.stop()


async def test_publishers_hear_of_a_change_before_the_reply_leaves() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    heard: list[str] = []

    def listener(old: Image, new: Image, delta: Delta) -> None:
        assert "t" not in old.topics
        assert "t" in new.topics
        assert delta == Delta(topics=frozenset({"t"}))
        heard.append("change")

    node.observe(listener)
    await node.controller.submit(create("t"))
    heard.append("reply")
    await node.controller.submit(UnfenceBroker(NODE))
    assert heard == ["change", "reply"]
    await node.stop()


async def test_a_failing_publisher_does_not_keep_the_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    heard: list[Delta] = []

    def broken(*_: object) -> None:
        raise RuntimeError("broken listener")

    node.observe(broken)
    node.observe(lambda _old, _new, delta: heard.append(delta))
    await node.controller.submit(create("t"))
    assert len(heard) == 1
    assert "broken listener" in caplog.text
    await node.stop()


async def test_a_caller_that_went_away_does_not_disturb_the_others() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    gone = asyncio.ensure_future(node.controller.submit(create("gone")))
    stays = asyncio.ensure_future(node.controller.submit(create("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert set(node.image.topics) == {"gone", "stays"}
    await node.stop()


async def test_a_full_disk_fails_the_command_and_leaves_nothing_half_done() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    image = node.image
    node.disk.faults.rules = [Fault("write", errno.ENOSPC, METADATA)]
    with pytest.raises(StorageError) as failed:
        await node.controller.submit(create("t"))
    assert failed.value.retriable
    assert node.image is image
    node.disk.faults.rules = []
    await node.controller.submit(create("t"))
    assert "t" in node.image.topics
    await node.stop()
    again = await MetadataNode(node.disk.after_kill()).start()
    assert set(again.image.topics) == {"t"}
    await again.stop()


async def test_after_a_failed_flush_nothing_changes_until_the_log_is_opened_again() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    await node.controller.submit(create("before"))
    image = node.image
    node.disk.faults.rules = [Fault("sync", errno.EIO, METADATA)]
    with pytest.raises(StorageError) as failed:
        await node.controller.submit(create("t"))
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed.value.retriable
    node.disk.faults.rules = []
    operations = len(node.disk.operations)
    for command in (create("u"), UnfenceBroker(NODE)):
        with pytest.raises(StorageError) as refused:
            await node.controller.submit(command)
        assert "restart" in refused.value.hint
    assert len(node.disk.operations) == operations
    assert node.image is image
    await node.controller.stop()
    again = await MetadataNode(node.disk.after_kill()).join()
    assert "before" in again.image.topics
    assert "u" not in again.image.topics
    await again.controller.submit(create("u"))
    await again.stop()


async def test_everything_queued_behind_a_failed_flush_fails_with_it() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    node.disk.faults.rules = [Fault("sync", errno.EIO, METADATA)]
    held = HeldExecutor()
    node.quorum._executor = held
    first = asyncio.ensure_future(node.controller.submit(create("a")))
    for _ in range(5):
        await asyncio.sleep(0)
    second = asyncio.ensure_future(node.controller.submit(create("b")))
    await asyncio.sleep(0)
    held.gate.set()
    failures = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(failure, StorageError) for failure in failures)
    assert held.calls == 1
    await node.controller.stop()


async def test_a_flush_that_could_not_be_tried_is_tried_again_before_the_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sole_voter_quorum, "FLUSH_RETRY_SECONDS", 0)
    node = await MetadataNode(SimulatedFileSystem()).join()
    flush = node.log.flush
    outcomes = [StorageUnavailable("too many open files") for _ in range(2)]

    def put_off() -> None:
        assert "t" not in node.image.topics
        if outcomes:
            raise outcomes.pop()
        flush()

    monkeypatch.setattr(node.log, "flush", put_off)
    (answer,) = await node.controller.submit(create("t"))
    assert answer.error is ErrorCode.NONE
    assert not outcomes
    await node.stop()


class BrokenExecutor:
    async def run(self, call: Callable[[], object]) -> Any:
        del call
        raise ZeroDivisionError("a mistake of ours")


async def test_a_mistake_of_ours_fails_its_command_and_hangs_nobody() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    node.quorum._executor = BrokenExecutor()
    for name in ("t", "u"):
        with pytest.raises(StorageError):
            await node.controller.submit(create(name))
    assert not node.image.topics
    await node.controller.stop()


async def test_stopping_finishes_what_was_submitted_and_takes_nothing_more() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    last = asyncio.ensure_future(node.controller.submit(create("t")))
    await asyncio.sleep(0)
    await node.stop()
    assert (await last)[0].error is ErrorCode.NONE
    with pytest.raises(StorageError, match="not running"):
        await node.controller.submit(create("u"))


async def test_stopping_does_not_wait_for_a_command_that_is_refused() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    last = asyncio.ensure_future(node.controller.submit(UnfenceBroker(NodeId(9))))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await node.stop()
    with pytest.raises(ApiError):
        await last


async def test_a_killed_controller_writes_nothing_more() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    waiting = asyncio.ensure_future(node.controller.submit(create("t")))
    await asyncio.sleep(0)
    operations = len(node.disk.operations)
    node.controller.kill()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(node.disk.operations) == operations


async def test_every_start_begins_new_epochs_of_quorum_broker_and_leaders() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    await node.controller.submit(create("t"))
    disk, epochs = node.disk, []
    for start in range(3):
        image = node.image
        partition = image.topics["t"].partitions[0]
        epochs.append((image.epoch, partition.leader_epoch, image.brokers[0].epoch))
        await node.stop()
        disk = disk.after_kill()
        node = await MetadataNode(disk, seed=start + 2).join()
    assert [quorum for quorum, _, _ in epochs] == [1, 2, 3]
    assert [leader for _, leader, _ in epochs] == [0, 1, 2]
    assert epochs == sorted(epochs)
    assert len({broker for _, _, broker in epochs}) == 3
    await node.stop()


async def test_bumping_epochs_answers_with_the_number_of_partitions() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    await node.controller.submit(create("a", "b", partitions=4))
    assert await node.controller.submit(BumpLeaderEpochs(NODE)) == 8
    await node.stop()
