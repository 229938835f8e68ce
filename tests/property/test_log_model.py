"""The log against a list of batches: whatever is done to both, both hold the same.

The disk is the simulated one, so that a step may also be a kill or a power cut: then the log
may have lost what was never flushed, but must be a whole-batch prefix of the model.
"""

import logging
from dataclasses import dataclass
from random import Random
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.core.errors import OffsetOutOfRange
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.flush_job import FlushJob
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import iterate_headers, parse_header
from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.inodes import Seeded
from tests.simulation.loop import SeededRandomness
from tests.support.log_checks import log_problems

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7, version=4)
START_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=150,
    retention_ms=-1,
    retention_bytes=1500,
    file_delete_delay_ms=100,
)


class StepClock:
    """Moves only when told to."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return float(self.ms)


@dataclass(frozen=True, slots=True)
class Written:
    """A batch as it lies in the log."""

    first: int
    last: int
    epoch: int
    stamps: tuple[int, ...]
    stored: bytes
    producer: tuple[int, int] | None  # id and first sequence
    sent: bytes


class LogAgainstList(RuleBasedStateMachine):
    """The model: every batch that can be read from `start` on; `ever` are all that were written."""

    @initialize()
    def begin(self) -> None:
        self.clock = StepClock()
        self.disk = SimulatedFileSystem(self.clock.now_ms)
        self.disk.make_directory("/")
        self.batches: list[Written] = []
        self.ever: dict[bytes, Written] = {}
        self.start = 0
        self.end = 0
        self.flushed = 0
        self.epoch = 1
        self.sequences: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        self.begun: list[FlushJob] = []
        self.synced: list[FlushJob] = []
        randomness = SeededRandomness(Random(1))
        self.directory = LogDirectory.open(
            self.disk, "/data", self.clock, randomness, node_id=NodeId(0)
        )
        self.log: PartitionLog = self.directory.create(PARTITION, TOPIC_ID, CONFIG)

    # Writing

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 120),
        late_ms=st.integers(-50, 200),
        producer=st.sampled_from([-1, -1, 11, 12]),
    )
    def append(self, count: int, size: int, late_ms: int, producer: int) -> None:
        self.clock.ms += 10
        base_ms = self.clock.ms + late_ms
        stamps = tuple(base_ms + (number * 7) % 5 for number in range(count))
        records = [Record(n, stamp, b"k", b"x" * size) for n, stamp in enumerate(stamps)]
        sequence = self.sequences.get(producer, 0)
        sent = encode_batch(
            records,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
        )
        original = bytes(sent)
        info = self.log.append([(0, parse_header(sent))], memoryview(sent), LeaderEpoch(self.epoch))
        assert (info.first_offset, info.duplicate) == (self.end, False)
        assert info.last_offset == info.first_offset + count - 1
        self.end += count
        known = (producer, sequence) if producer >= 0 else None
        stored = bytes(sent)
        batch = Written(
            info.first_offset, info.last_offset, self.epoch, stamps, stored, known, original
        )
        self.batches.append(batch)
        self.ever[stored] = batch
        if producer >= 0:
            self.sequences[producer] = sequence + count

    @precondition(lambda self: any(batch.producer for batch in self.batches))
    @rule(back=st.integers(0, 4))
    def send_again(self, back: int) -> None:
        """One of a producer's last five batches is recognised, wherever it lies."""
        newest = next(b for b in reversed(self.batches) if b.producer)
        assert newest.producer is not None
        producer = newest.producer[0]
        mine = [b for b in self.batches if b.producer and b.producer[0] == producer]
        batch = mine[-min(back + 1, len(mine), 5)]
        buffer = bytearray(batch.sent)
        info = self.log.append(
            [(0, parse_header(buffer))], memoryview(buffer), LeaderEpoch(self.epoch)
        )
        assert (info.first_offset, info.last_offset, info.duplicate) == (
            batch.first,
            batch.last,
            True,
        )

    @rule()
    def another_leader(self) -> None:
        self.epoch += 1
        self.log.start_epoch(LeaderEpoch(self.epoch))

    # Durability

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        self.flushed = self.end

    @precondition(lambda self: len(self.begun) < 3)
    @rule()
    def begin_flush(self) -> None:
        """Several at a time, as of a checkpoint and of those who wait."""
        self.begun.append(self.log.begin_flush())

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        job = self.begun.pop(data.draw(st.integers(0, len(self.begun) - 1)))
        job.sync()
        self.synced.append(job)

    @precondition(lambda self: self.synced)
    @rule(data=st.data())
    def end_flush(self, data: st.DataObject) -> None:
        job = self.synced.pop(data.draw(st.integers(0, len(self.synced) - 1)))
        reached = self.log.end_flush(job, None)
        assert self.flushed <= reached <= self.end
        self.flushed = int(reached)

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()
        self.flushed = int(self.log.flushed_offset)
        assert not (found_problems := log_problems(self.log)), found_problems

    # Shrinking

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(Offset(offset))
        self.batches = [b for b in self.batches if b.last < offset]
        if offset < self.end:
            self.end = int(self.log.log_end_offset)
            assert self.end == (self.batches[-1].last + 1 if self.batches else self.end)
            assert self.end <= offset
        self.flushed = min(self.flushed, self.end)
        self.start = min(self.start, self.end)
        self._learn_sequences()
        # A leader that truncates is none: another one follows.
        self.epoch += 1

    def _learn_sequences(self) -> None:
        """Go on where the log says producers are, which must be where their last batch is."""
        self.sequences = {}
        for producer_id, producer in self.log.producers:
            self.sequences[producer_id] = producer.last_sequence + 1
        expected: dict[int, int] = {}
        for batch in self.batches:
            if batch.producer is not None:
                producer_id, sequence = batch.producer
                expected[producer_id] = sequence + len(batch.stamps)
        assert self.sequences.items() >= expected.items()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start(Offset(offset))
        self.directory.checkpoint_log_starts(durable=True)
        self.start = offset
        self._forget_deleted()

    @rule()
    def retention(self) -> None:
        self.log.apply_retention(self.clock.ms, self.log.log_end_offset)
        if self.log.log_start_offset > self.start:
            kept = sum(len(b.stored) for b in self.batches if b.first >= self.log.log_start_offset)
            assert kept >= CONFIG.retention_bytes or self.log.log_start_offset <= self.start
            self.start = int(self.log.log_start_offset)
            self.flushed = max(self.flushed, self.start)
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        self.batches = [b for b in self.batches if b.last >= self.start]

    @rule()
    def files_of_deleted_segments_go(self) -> None:
        self.clock.ms += 1000
        self.directory.remove_deleted(self.clock.ms)

    # Restarts

    @rule()
    def stop_and_start(self) -> None:
        self.directory.close()
        self.disk = self.disk.after_kill()
        self._open()
        assert self.directory.clean
        assert not (found_problems := log_problems(self.log)), found_problems
        self.flushed = self.end

    @rule()
    def be_killed(self) -> None:
        self.disk = self.disk.after_kill()
        self._open()
        assert not self.directory.clean

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.disk = self.disk.after_power_cut(Seeded(Random(seed)))
        self._open()
        found = self._read_all()
        # What was flushed is there. What was deleted or truncated, unsynced, may be back.
        promised = [b for b in self.batches if b.first >= self.start and b.last < self.flushed]
        assert set(promised) <= set(found)
        assert self.log.log_end_offset >= self.flushed
        assert self.log.log_start_offset <= self.start or not promised
        epochs = [b.epoch for b in found]
        assert epochs == sorted(epochs)
        self.batches = found
        self.start, self.end = int(self.log.log_start_offset), int(self.log.log_end_offset)
        self.flushed = int(self.log.flush())
        self._learn_sequences()
        self.epoch = max(self.epoch, int(self.log.latest_epoch))
        assert not (found_problems := log_problems(self.log)), found_problems

    def _read_all(self) -> list[Written]:
        """The log's batches, each of which must have been written by somebody."""
        offset = self.log.log_start_offset
        found: list[Written] = []
        while offset < self.log.log_end_offset:
            chunk = self.log.read(offset, 333, self.log.log_end_offset, at_least_one=True)
            assert chunk, f"nothing at {offset}"
            for position, header in iterate_headers(chunk):
                batch = self.ever[bytes(chunk[position : position + header.size])]
                assert batch.last >= offset
                assert not found or batch.first == found[-1].last + 1
                found.append(batch)
                offset = Offset(batch.last + 1)
        return found

    # What must hold at all times

    @invariant()
    def offsets_agree(self) -> None:
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.end
        assert self.log.flushed_offset <= self.end

    @invariant()
    def everything_reads_back(self) -> None:
        assert self._read_all() == self.batches

    @rule(data=st.data(), max_bytes=st.integers(1, 700), at_least_one=st.booleans())
    def read_anywhere(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        start = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(start, self.end))
        found, behind = self.log.find(
            Offset(start), max_bytes, Offset(end), at_least_one=at_least_one
        )
        got = b"" if found is None else found.read()
        readable = [b for b in self.batches if b.last >= start and b.last < end]
        expected = b""
        for batch in readable:
            alone = at_least_one and not expected
            if len(expected) + len(batch.stored) > max_bytes and not alone:
                break
            expected += batch.stored
        # One segment at a time: a read may end early, but never at nothing where there is some.
        assert expected.startswith(got)
        assert bool(got) == bool(expected)
        if got:
            assert behind == [header.last_offset for _, header in iterate_headers(got)][-1] + 1

    @rule(beside=st.sampled_from([-1, 1]))
    def read_outside(self, beside: int) -> None:
        offset = self.start - 1 if beside < 0 else self.end + 1
        with pytest.raises(OffsetOutOfRange):
            self.log.read(Offset(offset), 100, self.log.log_end_offset)

    @rule(delta_ms=st.integers(-300, 300), data=st.data())
    def find_by_time(self, delta_ms: int, data: st.DataObject) -> None:
        wanted = self.clock.ms + delta_ms
        end = Offset(data.draw(st.integers(self.start, self.end)))
        expected = next(
            (
                (b.first + number, stamp, b.epoch)
                for b in self.batches
                for number, stamp in enumerate(b.stamps)
                if stamp >= wanted and b.first + number >= self.start
            ),
            None,
        )
        if expected is not None and expected[0] >= end:
            expected = None
        assert self.log.find_by_timestamp(wanted, end) == expected

    @rule()
    def epochs_agree(self) -> None:
        for batch in self.batches:
            if batch.first >= self.start:
                assert self.log.epoch_for_offset(Offset(batch.first)) == batch.epoch
        ends = {b.epoch: b.last + 1 for b in self.batches}
        for epoch, end in ends.items():
            assert self.log.end_offset_for_epoch(LeaderEpoch(epoch))[1] >= end


def test_the_log_holds_what_the_model_holds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    run_state_machine_as_test(
        LogAgainstList,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
