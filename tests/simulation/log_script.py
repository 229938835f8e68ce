"""A life of two partitions, short and eventful, watched at every step on the disk.

`LogScript.run` appends, flushes, rolls, checkpoints, deletes, truncates, re-creates, stops,
is killed and loses power. After every operation on the disk it keeps a copy of the disk and of
what had been promised by then: a `CrashPoint`.
"""

from dataclasses import dataclass
from random import Random
from uuid import UUID

from headrace.core.ids import NodeId, Offset, TopicPartition
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import Survival, Torn
from tests.simulation.ledger import Ledger, append_to, problems, produced_batch
from tests.simulation.loop import SeededRandomness

PATH = "/data"
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SMALL = LogConfig(
    segment_bytes=400, index_interval_bytes=120, retention_ms=-1, file_delete_delay_ms=1000
)


class SteppedClock:
    """A clock that the script moves."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return float(self.ms)


@dataclass(slots=True)
class CrashPoint:
    """The disk right after one operation, and what had been promised before it."""

    operation: Operation
    disk: SimulatedFileSystem
    ledgers: dict[TopicPartition, Ledger]

    def problems_after(self, survival: Survival | None) -> list[str]:
        """Crash here, recover, and say what is wrong."""
        copy = self.disk.copy()
        after = copy.after_kill() if survival is None else copy.after_power_cut(survival)
        directory = open_directory(after, SteppedClock(), seed=2)
        found = [
            f"{partition}: {problem}"
            for partition, ledger in self.ledgers.items()
            for problem in problems(directory.create(partition, ledger.topic_id, SMALL), ledger)
        ]
        directory.close()
        return [f"after {self.operation}: {problem}" for problem in found]


def open_directory(disk: SimulatedFileSystem, clock: SteppedClock, seed: int) -> LogDirectory:
    randomness = SeededRandomness(Random(seed))
    return LogDirectory.open(disk, PATH, clock, randomness, node_id=NodeId(0), cluster_id="c")


class LogScript:
    """One run. `skipped_sync_sites` takes single syncs away from the product."""

    def __init__(self, skipped_sync_sites: frozenset[str] = frozenset()) -> None:
        self.clock = SteppedClock()
        self.points: list[CrashPoint] = []
        self.operations: list[Operation] = []
        self.disk = SimulatedFileSystem(self.clock.now_ms)
        self.disk.faults.skipped_sync_sites = set(skipped_sync_sites)
        self.disk.make_directory("/")
        self.disk.observer = self._observe
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.directory: LogDirectory
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._topics = 0
        self._epoch = 0

    def run(self) -> None:
        self._start()
        self._new_topic(A)
        self._new_topic(B)
        self._grow()
        self._checkpoints_and_deletes()
        self._kill_and_go_on()
        self._flush_twice_at_a_time()
        self._truncate()
        self._retention()
        self._retention()
        self._reset_log()
        self._stop_and_go_on()
        self._recreate()
        self._lose_power_and_go_on()
        self.directory.close()

    # Chapters

    def _grow(self) -> None:
        """Appends before, between and without flushes; segments roll."""
        self._append(A, 1)
        self._flush(A)
        for producer in (1, 2, 1, 2, 1):
            self._append(A, producer)
            self._append(B, producer)
        self._flush(A)
        self._flush(B)
        self._append(A, 1)

    def _checkpoints_and_deletes(self) -> None:
        self.directory.checkpoint()
        self._note_flushed(A)
        self._note_flushed(B)
        for _ in range(4):
            self._append(A, 2)
        self._flush(A)
        self.ledgers[A].start_at_most = 5
        self.directory.logs[A].advance_log_start(Offset(5))
        self.directory.checkpoint_log_starts(durable=True)
        self.ledgers[A].start_at_least = 5
        self._append(A, 1)

    def _kill_and_go_on(self) -> None:
        """What was written survives the kill; then it must become stable like all else."""
        self._append(B, 1)
        self._reopen(self.disk.after_kill())
        for partition in (A, B):
            self._flush(partition)
            self._append(partition, 1)
        self._flush(B)

    def _flush_twice_at_a_time(self) -> None:
        """As a checkpoint does beside those who wait; the later one is done first."""
        log = self.directory.logs[B]
        self._append(B, 1)
        first = log.begin_flush()
        for _ in range(3):
            self._append(B, 2)
        second = log.begin_flush()
        for job in (second, first):
            job.sync()
            log.end_flush(job, None)
            self._note_flushed(B)

    def _truncate(self) -> None:
        self.directory.checkpoint()
        self._note_flushed(A)
        self._note_flushed(B)
        self._truncate_to(A, 18)
        # Too large for what is left of the segment: nothing is written to the one that was cut.
        self._append(A, 3, records=26)
        for _ in range(3):
            self._append(A, 3)
        self._flush(A)

    def _retention(self) -> None:
        """Old segments go; what producers sent in them is still known."""
        log, ledger = self.directory.logs[B], self.ledgers[B]
        ledger.start_at_most = int(log.log_end_offset)
        log.update_config(LogConfig(segment_bytes=400, index_interval_bytes=120, retention_bytes=1))
        log.apply_retention(self.clock.now_ms(), log.log_end_offset)
        ledger.start_at_most = int(log.log_start_offset)
        self.clock.ms += 100_000
        self.directory.remove_deleted(self.clock.now_ms())
        self._append(B, 1)
        self._flush(B)

    def _reset_log(self) -> None:
        """As a follower does that is too far behind."""
        log, ledger = self.directory.logs[B], self.ledgers[B]
        self._append(B, 2)
        ledger.about_to_truncate(0)
        ledger.start_at_most = 100
        log.truncate_fully_and_start_at(Offset(100))
        ledger.start_at_least = ledger.flushed_end = 100
        self._sequences = {k: v for k, v in self._sequences.items() if k[0] != B}
        self._append(B, 7)
        self._append(B, 1)
        self._flush(B)

    def _stop_and_go_on(self) -> None:
        self.directory.close()
        for partition in (A, B):
            self._note_flushed(partition)
        self.disk.sync_everything()  # some time later
        self._reopen(self.disk.after_kill())
        self._append(A, 1)
        self._append(B, 2)
        self._flush(A)

    def _recreate(self) -> None:
        """Another topic of the same name: nothing of the old one may be seen in it."""
        self._append(A, 2)
        self.ledgers.pop(A)
        self.directory.delete(A)
        self._new_topic(A)
        self._append(A, 4)
        self._append(A, 4)
        self._flush(A)
        self._append(A, 4)
        self.ledgers.pop(A)
        self.directory.delete(A)
        self._new_topic(A)
        self._append(A, 5)
        self._flush(A)

    def _lose_power_and_go_on(self) -> None:
        self.directory.checkpoint()
        for partition in (A, B):
            self._note_flushed(partition)
        self._append(A, 5)
        self._append(B, 1)
        self._reopen(self.disk.after_power_cut(Torn(0)))
        for partition in (A, B):
            log, ledger = self.directory.logs[partition], self.ledgers[partition]
            ledger.about_to_truncate(int(log.log_end_offset))
            self._sequences_from(partition)
            self._append(partition, 6, records=26)
            self._flush(partition)
            self._append(partition, 6)

    # Steps

    def _start(self) -> None:
        self.directory = open_directory(self.disk, self.clock, seed=1)
        self._epoch += 1

    def _reopen(self, disk: SimulatedFileSystem) -> None:
        self.disk = disk
        self.disk.observer = self._observe
        self._start()
        for partition, ledger in self.ledgers.items():
            self.directory.create(partition, ledger.topic_id, SMALL)

    def _new_topic(self, partition: TopicPartition) -> None:
        self._topics += 1
        self.ledgers[partition] = Ledger(UUID(int=self._topics, version=4))
        self._sequences = {k: v for k, v in self._sequences.items() if k[0] != partition}
        self.directory.create(partition, self.ledgers[partition].topic_id, SMALL)

    def _append(self, partition: TopicPartition, producer: int, records: int = 2) -> None:
        sequence = self._sequences.get((partition, producer), 0)
        log = self.directory.logs[partition]
        produced = produced_batch(producer, sequence, records)
        self.ledgers[partition].about_to_write(produced, log, self._epoch)
        info, stored = append_to(log, produced, self._epoch)
        assert not info.duplicate
        assert stored in self.ledgers[partition].ever
        self._sequences[partition, producer] = sequence + records

    def _sequences_from(self, partition: TopicPartition) -> None:
        """Producers go on where the log says they are."""
        for sent in self.ledgers[partition].written.values():
            self._sequences[partition, sent.producer_id] = sent.next_sequence

    def _flush(self, partition: TopicPartition) -> None:
        end = self.directory.logs[partition].flush()
        assert end == self.directory.logs[partition].log_end_offset
        self._note_flushed(partition)

    def _note_flushed(self, partition: TopicPartition) -> None:
        self.ledgers[partition].flushed_end = int(self.directory.logs[partition].flushed_offset)

    def _truncate_to(self, partition: TopicPartition, offset: int) -> None:
        log, ledger = self.directory.logs[partition], self.ledgers[partition]
        ledger.about_to_truncate(offset)
        log.truncate_to(Offset(offset))
        ledger.about_to_truncate(int(log.log_end_offset))
        self._sequences_from(partition)

    def _observe(self, operation: Operation) -> None:
        self.operations.append(operation)
        ledgers = {partition: ledger.copy() for partition, ledger in self.ledgers.items()}
        self.points.append(CrashPoint(operation, self.disk.copy(), ledgers))
