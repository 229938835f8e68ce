"""The quorum of one: what it flushes is committed, and what it cannot write was never there."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest

from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.directory import LogDirectory
from headrace.metadata import sole_voter_quorum
from headrace.metadata.image import Image
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.quorum import ReplicaKey
from headrace.metadata.records import MetadataRecord, TopicRecord, decode_record
from headrace.metadata.sole_voter_quorum import SoleVoterQuorum
from headrace.protocol.records.decode import iterate_records
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.simulation.loop import SeededRandomness
from tests.support.metadata import DATA, METADATA, NODE, StandingClock

T = TypeVar("T")


class GatedExecutor:
    """Runs a call once its turn has come."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        await self.gate.wait()
        self.calls += 1
        return call()


class Told:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def committed(self, offset: Offset) -> None:
        self.events.append(("committed", offset))

    def elected(self, epoch: LeaderEpoch) -> None:
        self.events.append(("elected", epoch))

    def resigned(self, epoch: LeaderEpoch) -> None:
        self.events.append(("resigned", epoch))

    def append_failed(self, error: StorageError) -> None:
        self.events.append(("failed", error.code))

    def take(self) -> list[tuple[str, object]]:
        events, self.events = self.events, []
        return events


class Voter:
    """A sole voter on a disk."""

    def __init__(self, disk: SimulatedFileSystem) -> None:
        self.disk = disk
        clock = StandingClock()
        directory = LogDirectory.open(disk, DATA, clock, SeededRandomness(Random(1)), node_id=NODE)
        self.executor = GatedExecutor()
        self.told = Told()
        self.log = MetadataLog(disk, directory, clock)
        self.quorum = SoleVoterQuorum(self.log, ReplicaKey(NODE, UUID(int=5)), self.executor)

    async def start(self) -> "Voter":
        await self.quorum.open(Image("a-cluster"))
        await self.quorum.start(self.told)
        return self

    def append(self, *names: str) -> Offset:
        records = [TopicRecord(name=name, topic_id=UUID(int=1)) for name in names]
        return self.quorum.append(self.quorum.epoch, records)

    def names(self, start: int = 0) -> list[str]:
        """Of what is committed."""
        found: list[MetadataRecord] = []
        for batch, header in self.quorum.read(Offset(start), self.quorum.high_watermark):
            if not header.is_control:
                found += [decode_record(r.value or b"") for r in iterate_records(batch, 0, header)]
        return [record.name for record in found if isinstance(record, TopicRecord)]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_elects_itself_in_an_epoch_of_its_own_and_the_log_says_so_first() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    assert voter.told.take() == [("committed", 1), ("elected", 1)]
    assert voter.quorum.high_watermark == voter.quorum.end_offset == 1
    again = await Voter(voter.disk.after_power_cut(LOSE_EVERYTHING)).start()
    assert again.told.take() == [("committed", 2), ("elected", 2)]


async def test_an_epoch_that_only_the_log_remembers_is_not_led_again() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    await voter.quorum.stop()
    disk = voter.disk.after_kill()
    disk.remove(f"{METADATA}/quorum-state")
    again = await Voter(disk).start()
    assert again.quorum.epoch == 2


async def test_an_append_says_where_it_ends_and_is_committed_once_it_is_flushed() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    voter.executor.gate.clear()
    assert [voter.append("a", "b"), voter.append("c")] == [3, 4]
    await settle()
    assert voter.told.take() == []
    assert voter.names() == []
    voter.executor.gate.set()
    await settle()
    assert voter.told.take() == [("committed", 4)]
    assert voter.names() == ["a", "b", "c"]
    disk = voter.disk.after_power_cut(LOSE_EVERYTHING)
    again = await Voter(disk).start()
    assert again.names() == ["a", "b", "c"]


async def test_what_is_appended_during_a_flush_shares_the_next_one() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    calls = voter.executor.calls
    voter.executor.gate.clear()
    voter.append("a")
    await settle()
    for name in "bcd":
        voter.append(name)
    voter.executor.gate.set()
    await settle()
    assert voter.executor.calls == calls + 2
    batches = list(voter.quorum.read(Offset(0), voter.quorum.high_watermark))
    assert [header.record_count for _, header in batches] == [1, 1, 3]


async def test_batches_that_are_joined_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole_voter_quorum, "RECORDS_PER_BATCH_MAX", 4)
    voter = await Voter(SimulatedFileSystem()).start()
    runs: Sequence[tuple[str, ...]] = (("a", "b"), ("c",), ("d", "e"), ("f",) * 7, ("g",))
    for names in runs:
        voter.append(*names)
    await settle()
    batches = list(voter.quorum.read(Offset(0), voter.quorum.high_watermark))
    assert [header.record_count for _, header in batches] == [1, 3, 2, 7, 1]


async def test_a_batch_that_cannot_be_written_takes_those_behind_it_along() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    voter.disk.faults.rules = [Fault("write", errno.ENOSPC, METADATA)]
    voter.append("a")
    await settle()
    assert voter.told.take() == [("failed", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert voter.quorum.failure is None
    voter.disk.faults.rules = []
    assert voter.append("b") == 2
    await settle()
    assert voter.told.take() == [("committed", 2)]
    assert voter.names() == ["b"]


async def test_what_was_appended_while_a_batch_could_not_be_written_rested_on_it() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    voter.executor.gate.clear()
    voter.append("a")
    await settle()
    voter.append("b")
    voter.disk.faults.rules = [Fault("write", errno.ENOSPC, METADATA, times=1)]
    voter.executor.gate.set()
    await settle()
    assert voter.told.take() == [("failed", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert voter.append("c") == 2
    await settle()
    assert voter.names() == ["c"]


async def test_batches_before_one_that_cannot_be_written_are_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sole_voter_quorum, "RECORDS_PER_BATCH_MAX", 1)
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    append = voter.log.append

    def fails(records: Sequence[MetadataRecord], epoch: LeaderEpoch) -> None:
        if records[0].name == "b":  # type: ignore[attr-defined]  # all are topics here
            raise StorageError("no space")
        append(records, epoch)

    monkeypatch.setattr(voter.log, "append", fails)
    for name in "abc":
        voter.append(name)
    await settle()
    assert voter.told.take() == [("committed", 2), ("failed", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert voter.quorum.end_offset == 2
    assert voter.names() == ["a"]


async def test_after_a_failed_flush_nothing_is_appended_any_more() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    voter.disk.faults.rules = [Fault("sync", errno.EIO, METADATA)]
    voter.append("a")
    await settle()
    assert voter.told.take() == [("failed", ErrorCode.KAFKA_STORAGE_ERROR)]
    voter.disk.faults.rules = []
    with pytest.raises(StorageError, match="could not be written"):
        voter.append("b")
    assert voter.names() == []


async def test_another_epoch_than_its_own_is_refused() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    with pytest.raises(ApiError) as refused:
        voter.quorum.append(LeaderEpoch(7), [])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await voter.quorum.stop()
    with pytest.raises(ApiError):
        voter.append("a")


async def test_a_stop_finishes_what_was_appended() -> None:
    voter = await Voter(SimulatedFileSystem()).start()
    voter.told.take()
    voter.append("a")
    await voter.quorum.stop()
    assert voter.told.take() == [("committed", 2)]
