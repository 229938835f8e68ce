"""A shard's journal: one batch per turn, answers in order, and what a failing log costs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import NodeId, Offset, TopicPartition
from headrace.core.topic_configs import TopicConfig
from headrace.groups import partition_writer as journal_module
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.partition_writer import PartitionWriter, TimedReply
from headrace.groups.records import encode
from headrace.groups.result import PendingReply
from headrace.log.partition_log import PartitionLog
from headrace.metadata.image import PartitionRegistration
from headrace.node.system import RealClock, RealRandomness
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatResponse
from headrace.protocol.records.header import iterate_headers
from headrace.replication.partition import Partition
from headrace.replication.settings import TopicSettings
from headrace.testing.unsynced_files import UnsyncedFileSystem

OFFSETS = TopicPartition("__consumer_offsets", 0)
RESPONSE = HeartbeatResponse()


class Fixture:
    """A journal over a real log whose flushes the test decides about."""

    def __init__(self, files: UnsyncedFileSystem, directory: Path) -> None:
        broker = BrokerConfig()
        settings = TopicSettings(TopicConfig.resolve({}, broker), broker)
        self.log = PartitionLog.open(files, str(directory / "p"), settings.log, RealClock())
        self.partition = Partition(
            OFFSETS, RealRandomness().uuid(), self.log, settings, request_flush=lambda _, __: None
        )
        self.partition.become_leader(PartitionRegistration(NodeId(0), 0, 0, (0,), (0,)))
        self.failures: list[ErrorCode] = []
        self.journal = PartitionWriter(self.partition, Codec.NONE, self.failures.append)
        self.heard: list[tuple[str, Message | ErrorCode]] = []

    def token(self, name: str) -> Callable[[Message | ApiError], None]:
        return lambda outcome: self.heard.append(
            (name, outcome.code if isinstance(outcome, ApiError) else outcome)
        )

    def write(self, name: str, records: int = 1) -> None:
        writes = [encode(ClassicGroup(name).record())] * records
        self.journal.write(writes, [PendingReply(self.token(name), RESPONSE)], 1)

    def flush(self) -> None:
        self.partition.flushed(self.log.log_end_offset, 0)

    def batches(self) -> list[int]:
        """Records in each batch of the log."""
        data = self.log.read(Offset(0), 1 << 24, self.log.log_end_offset)
        return [header.record_count for _, header in iterate_headers(data)]


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    files = UnsyncedFileSystem()
    yield Fixture(files, tmp_path)
    files.close()


async def turn() -> None:
    """Let the loop come round."""
    await asyncio.sleep(0)


async def test_what_is_decided_in_one_turn_shares_a_batch(fixture: Fixture) -> None:
    fixture.write("a")
    fixture.write("b", records=2)
    await turn()
    fixture.write("c")
    await turn()
    assert fixture.batches() == [3, 1]


async def test_an_answer_leaves_when_its_record_is_committed(fixture: Fixture) -> None:
    fixture.write("a")
    await turn()
    assert fixture.heard == []
    fixture.flush()
    assert fixture.heard == [("a", RESPONSE)]


async def test_a_wait_is_over_when_the_group_decides_not_when_it_is_on_disk(
    fixture: Fixture,
) -> None:
    told: list[str] = []

    def reply(name: str) -> TimedReply:
        return TimedReply(
            fixture.token(name),
            pause_timer=lambda: told.append(f"{name} waits"),
            resume_timer=lambda: told.append(f"{name} goes on"),
        )

    patient, quick = reply("patient"), reply("quick")
    patient.pause_timer_unless_decided()
    write = encode(ClassicGroup("g").record())
    fixture.journal.write(
        [write], [PendingReply(patient, RESPONSE), PendingReply(quick, RESPONSE)], 1
    )
    quick.pause_timer_unless_decided()
    assert told == ["patient waits", "patient goes on"]
    await turn()
    assert fixture.heard == []
    fixture.flush()
    assert [name for name, _ in fixture.heard] == ["patient", "quick"]
    assert len(told) == 2


async def test_an_answer_without_records_waits_for_those_before_it(fixture: Fixture) -> None:
    fixture.write("a")
    fixture.write("b", records=0)
    await turn()
    fixture.write("c", records=0)
    assert fixture.heard == []
    fixture.flush()
    assert [name for name, _ in fixture.heard] == ["a", "b", "c"]
    fixture.write("d", records=0)
    assert fixture.heard[-1] == ("d", RESPONSE)


async def test_whoever_reads_waits_until_all_is_settled(fixture: Fixture) -> None:
    settled = [fixture.journal.is_committed]
    fixture.write("a")
    settled.append(fixture.journal.is_committed)
    fixture.journal.when_committed(fixture.token("reader"))
    await turn()
    fixture.journal.when_committed(fixture.token("late reader"))
    settled.append(fixture.journal.is_committed)
    fixture.flush()
    settled.append(fixture.journal.is_committed)
    assert settled == [True, False, False, True]
    assert [name for name, _ in fixture.heard] == ["a", "reader", "late reader"]


async def test_much_at_once_is_appended_in_several_batches(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "BATCH_BYTES_MAX", 200)
    fixture.write("a", records=20)
    await turn()
    fixture.flush()
    assert sum(fixture.batches()) == 20
    assert len(fixture.batches()) > 2
    assert fixture.heard == [("a", RESPONSE)]


async def test_a_failed_append_refuses_all_who_wait_and_ends_the_journal(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(PartitionLog, "append", broken)
    fixture.write("a")
    fixture.write("b")
    await turn()
    refused = ErrorCode.NOT_COORDINATOR
    assert fixture.heard == [("a", refused), ("b", refused)]
    assert fixture.failures == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert fixture.journal.failed
    assert fixture.journal.is_committed


async def test_a_failed_flush_refuses_what_it_took_along(fixture: Fixture) -> None:
    fixture.write("a")
    await turn()
    fixture.write("b")
    fixture.partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
    await turn()
    assert {name for name, _ in fixture.heard} == {"a", "b"}
    assert {outcome for _, outcome in fixture.heard} == {ErrorCode.NOT_COORDINATOR}
    assert fixture.failures == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert fixture.batches() == [1]
