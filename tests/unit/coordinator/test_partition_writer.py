"""The log of a shard: one batch per turn, answers in order, and what a failing log costs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.coordinator import partition_writer as writer_module
from headrace.coordinator.partition_writer import PartitionWriter
from headrace.coordinator.result import PendingReply, WaitingReply
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import LeaderEpoch
from headrace.log.partition_log import PartitionLog
from headrace.protocol.compression import Codec
from headrace.protocol.message import Message
from tests.support.coordinator import RESPONSE, LedPartition, Register, encode


class Fixture(LedPartition):
    """A writer over a log whose flushes the test decides about."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.failures: list[ErrorCode] = []
        self.writer = PartitionWriter(
            self.partition, LeaderEpoch(0), Codec.NONE, self.failures.append
        )
        self.heard: list[tuple[str, Message | ErrorCode]] = []

    def reply(self, name: str) -> Callable[[Message | ApiError], None]:
        return lambda outcome: self.heard.append(
            (name, outcome.code if isinstance(outcome, ApiError) else outcome)
        )

    def write(self, name: str, records: int = 1) -> None:
        writes = [encode(Register(name, "text"))] * records
        self.writer.write(writes, [PendingReply(self.reply(name), RESPONSE)], 1)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    fixture = Fixture(tmp_path)
    yield fixture
    fixture.files.close()


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
    decided: list[str] = []

    class Waiting(WaitingReply):
        def decided(self) -> None:
            decided.append("decided")

        def __call__(self, outcome: Message | ApiError) -> None:
            fixture.reply("waiting")(outcome)

    write = encode(Register("g", "text"))
    fixture.writer.write([write], [PendingReply(Waiting(), RESPONSE)], 1)
    assert decided == ["decided"]
    await turn()
    assert fixture.heard == []
    fixture.flush()
    assert [name for name, _ in fixture.heard] == ["waiting"]


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
    settled = [fixture.writer.is_committed]
    fixture.write("a")
    settled.append(fixture.writer.is_committed)
    fixture.writer.when_committed(fixture.reply("reader"))
    await turn()
    fixture.writer.when_committed(fixture.reply("late reader"))
    settled.append(fixture.writer.is_committed)
    fixture.flush()
    settled.append(fixture.writer.is_committed)
    assert settled == [True, False, False, True]
    assert [name for name, _ in fixture.heard] == ["a", "reader", "late reader"]


async def test_much_at_once_is_appended_in_several_batches(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "BATCH_BYTES_MAX", 100)
    fixture.write("a", records=20)
    await turn()
    fixture.flush()
    assert sum(fixture.batches()) == 20
    assert len(fixture.batches()) > 2
    assert fixture.heard == [("a", RESPONSE)]


async def test_a_failed_append_refuses_all_who_wait_and_ends_the_writer(
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
    assert fixture.writer.failed
    fixture.writer.when_committed(fixture.reply("reader"))
    assert fixture.heard[-1] == ("reader", refused)


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


async def test_what_was_decided_in_one_leader_epoch_is_not_written_in_another(
    fixture: Fixture,
) -> None:
    fixture.write("a")
    fixture.lead(2)
    await turn()
    assert fixture.heard == [("a", ErrorCode.NOT_COORDINATOR)]
    assert fixture.failures == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert fixture.batches() == []


async def test_a_writer_that_is_closed_answers_nothing_of_what_is_not_committed(
    fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    fixture.write("appended")
    await turn()
    fixture.writer.when_committed(fixture.reply("reader"))
    fixture.write("decided")
    fixture.writer.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused = ErrorCode.NOT_COORDINATOR
    expected = [("appended", refused), ("reader", refused), ("decided", refused)]
    assert fixture.heard == expected
    await turn()
    fixture.flush()
    assert (fixture.heard, fixture.batches(), fixture.failures) == (expected, [1], [])
    fixture.write("late")
    assert fixture.heard[-1] == ("late", refused)
    assert caplog.text == ""
