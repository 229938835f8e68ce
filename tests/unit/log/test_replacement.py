"""Compacted segments take the place of those they were made from."""

import errno
import os
from dataclasses import replace

import pytest

from headrace.core.errors import StorageError
from headrace.core.ids import Offset
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import CompactionRequest, CompactionResult, SegmentRange
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.simulation.disk import Faults, SimulatedFileSystem
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    ToldClock,
    append,
    batch,
    open_directory,
    open_log,
    read_all,
    simulated_disk,
)

YEAR_2100_MS = 4_102_444_800_000
COMPACTING = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=frozenset(["compact"]),
    file_delete_delay_ms=0,
)


def written(batches: int = 30) -> tuple[LogDirectory, PartitionLog]:
    """Every batch has the same key, so that only the newest record is worth keeping."""
    directory = open_directory(simulated_disk())
    log = directory.create(ORDERS, TOPIC_ID, COMPACTING)
    for number in range(batches):
        append(log, batch(timestamps=[START_MS + number], producer_id=5, sequence=number))
    return directory, log


def compacted(log: PartitionLog, segment_bytes: int = 500) -> CompactionResult:
    closed = log.segments.all[:-1]
    ranges = tuple(SegmentRange(s.base_offset, s.next_offset, s.size) for s in closed)
    producers = tuple(log.active_producers().items())
    return compact_log(
        log.files,
        CompactionRequest(
            log.directory, ranges, START_MS + 10**9, 0, segment_bytes, producers=producers
        ),
    )


def offsets(log: PartitionLog) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def test_compacted_segments_take_the_place_of_the_old() -> None:
    directory, log = written()
    directory.checkpoint()
    before, size = offsets(log), log.size_bytes
    result = compacted(log)
    assert all(log.replace_segments(each) for each in result.replacements)
    assert log.size_bytes < size
    assert set(offsets(log)) < set(before)
    assert offsets(log)[-1] == 29
    assert append(log, batch(producer_id=5, sequence=29)).duplicate
    log.remove_deleted(START_MS)
    left = log.files.list_directory(log.directory)
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap"))]


def test_nothing_past_the_recovery_point_is_replaced() -> None:
    _, log = written()
    assert log.compactable_offset(log.log_end_offset) == 0
    before = offsets(log)
    (first, *_) = compacted(log).replacements
    assert not log.replace_segments(first)
    assert offsets(log) == before
    left = log.files.list_directory(log.directory)
    assert f"{first.base_offset:020d}.log.cleaned" not in left


def test_segments_deleted_meanwhile_are_not_replaced() -> None:
    directory, log = written()
    directory.checkpoint()
    result = compacted(log)
    log.advance_log_start(Offset(20))
    log.apply_retention(START_MS, log.log_end_offset)
    assert not log.replace_segments(result.replacements[0])
    assert min(offsets(log)) <= 20 <= max(offsets(log))


def test_a_crash_finds_the_compacted_log_again() -> None:
    directory, log = written()
    directory.checkpoint()
    for each in compacted(log).replacements:
        assert log.replace_segments(each)
    before = offsets(log)
    again = open_directory(log.files.after_kill())  # type: ignore[attr-defined]  # simulated
    log = again.create(ORDERS, TOPIC_ID, COMPACTING)
    assert offsets(log) == before
    assert log.log_end_offset == 30
    assert append(log, batch(producer_id=5, sequence=30)).first_offset == 30


class FailingNames(Faults):
    """The disk has no room for one change of names, or one sync of them, counted from 1."""

    number = 0
    count = 0

    def check(self, kind: str, path: str) -> None:
        if kind in ("rename", "sync_directory"):
            self.count += 1
            if self.count == self.number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


STEPS = [*range(1, 11), *range(12, 16)]
"""To commit, to make way (two segments), to put the new one in place, each with its sync at the
end. After the second sync has failed there is no going on: see the test below."""


def half_replaced(step: int) -> tuple[LogDirectory, PartitionLog, FailingNames]:
    """Every third record has a key of its own, so that something is kept of each segment."""
    directory = open_directory(simulated_disk())
    log = directory.create(ORDERS, TOPIC_ID, COMPACTING)
    for number in range(30):
        key = b"again" if number % 3 else b"once %d" % number
        record = Record(0, START_MS + number, key, b"value")
        append(log, encode_batch([record], producer_id=5, producer_epoch=0, base_sequence=number))
    directory.checkpoint()
    faults = FailingNames()
    log.files.faults = faults  # type: ignore[attr-defined]  # simulated
    replacement = compacted(log, 1000).replacements[0]
    assert len(replacement.old_base_offsets) == 2
    faults.number, faults.count = step, 0
    with pytest.raises(StorageError):
        log.replace_segments(replacement)
    return directory, log, faults


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["finished", "retention", "kill"])
def test_a_replacement_that_failed_half_way_is_finished(step: int, how: str) -> None:
    directory, log, _ = half_replaced(step)
    before = offsets(log)
    assert before[-1] == 29
    if how == "retention":
        log.update_config(replace(COMPACTING, cleanup_policy=frozenset(["compact", "delete"])))
        log.advance_log_start(Offset(6))
        log.apply_retention(START_MS, log.log_end_offset)
        before = [offset for offset in before if offset >= 6]
    log.finish_replacement()
    assert not log.is_half_replaced
    for each in compacted(log).replacements:
        assert log.replace_segments(each)
    kept = offsets(log)
    assert kept[-1] == 29
    assert set(kept) < set(before)
    log.remove_deleted()
    left = log.files.list_directory(log.directory)
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap"))]
    if how == "kill":
        directory = open_directory(log.files.after_kill())  # type: ignore[attr-defined]  # simulated
    else:
        directory.close()
        directory = open_directory(log.files)
    again = directory.create(ORDERS, TOPIC_ID, COMPACTING)
    assert offsets(again) == kept


def test_names_that_may_not_be_on_disk_are_settled_by_the_next_start() -> None:
    _, log, _ = half_replaced(11)
    before = offsets(log)
    assert not log.is_half_replaced
    log.finish_replacement()
    assert offsets(log) == before
    again = open_directory(log.files.after_kill())  # type: ignore[attr-defined]  # simulated
    kept = offsets(again.create(ORDERS, TOPIC_ID, COMPACTING))
    assert set(kept) < set(before)
    assert kept[-1] == 29


def test_facts_tell_what_a_plan_wants_to_know() -> None:
    _, log = written(10)
    facts = log.segment_facts
    assert [fact.base_offset for fact in facts] == [s.base_offset for s in log.segments]
    assert facts[-1].next_offset == 10


@pytest.mark.parametrize("stamp", [0, START_MS, YEAR_2100_MS])
def test_how_old_a_segment_is_follows_from_the_clock_whatever_its_records_say(stamp: int) -> None:
    clock = ToldClock()
    disk = SimulatedFileSystem(clock.now_ms)
    disk.make_directory("/")
    log = open_log(disk, COMPACTING, clock=clock)
    for number in range(10):
        append(log, batch(timestamps=[stamp + number]))
        clock.ms += 1000
    found = [(fact.begun_ms - START_MS, fact.closed_ms - START_MS) for fact in log.segment_facts]
    assert found[:2] == [(0, 6000), (6000, 10_000)]
    log.flush()
    log.close()
    again = open_log(disk, COMPACTING, clock=clock, clean=True, recovery_point=10)
    found = [(fact.begun_ms - START_MS, fact.closed_ms - START_MS) for fact in again.segment_facts]
    assert found[:2] == [(5000, 5000), (9000, 10_000)], "as far as the files tell"
