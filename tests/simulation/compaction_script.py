"""A compacted partition, watched at every step on the disk: cleaned, swapped, killed half way.

A crash anywhere may undo or finish a replacement of segments; never may the newest flushed value
of a key be missing, or a record appear that nobody wrote.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from headrace.core.ids import LeaderEpoch, Offset, TopicPartition
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.plan import plan_compaction
from headrace.log.compaction.request import CompactionRequest, SegmentRange
from headrace.log.compaction.swap import apply_replacements
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import iterate_headers
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import Survival
from tests.simulation.log_script import SteppedClock, open_directory
from tests.simulation.processes import ProcessDied
from tests.support.log_checks import log_problems

PARTITION = TopicPartition("c", 0)
TOPIC_ID = UUID(int=77, version=4)
CONFIG = LogConfig(
    cleanup_policy=frozenset(("compact",)),
    segment_bytes=500,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)

FIRST_TIMESTAMP = 1_000

Written = dict[int, tuple[bytes, bytes]]  # by offset: key, value


@dataclass(slots=True)
class CompactionCrashPoint:
    """The disk after one operation, what was written by then, and how far it was flushed."""

    operation: Operation
    disk: SimulatedFileSystem
    written: Written
    flushed_end: int

    def problems_after(self, survival: Survival | None) -> list[str]:
        """Crash here, recover, and say what is wrong."""
        copy = self.disk.copy()
        after = copy.after_kill() if survival is None else copy.after_power_cut(survival)
        directory = open_directory(after, SteppedClock(), seed=2)
        log = directory.create(PARTITION, TOPIC_ID, CONFIG)
        found = self._problems(log)
        directory.close()
        return [f"after {self.operation}: {problem}" for problem in found]

    def _problems(self, log: PartitionLog) -> list[str]:
        # First: a damaged index is made anew by whoever uses it.
        found = log_problems(log)
        present = read_records(log)
        found += [
            f"offset {offset} holds {present[offset]}, which nobody wrote"
            for offset in present
            if self.written.get(offset) != present[offset]
        ]
        newest: dict[bytes, int] = {}
        for offset, (key, _) in sorted(self.written.items()):
            if offset < self.flushed_end:
                newest[key] = offset
        kept = {key: offset for offset, (key, _) in sorted(present.items())}
        found += [
            f"key {key!r}: newest flushed is {offset}, newest there is {kept.get(key)}"
            for key, offset in newest.items()
            if kept.get(key, -1) < offset
        ]
        if log.log_end_offset < self.flushed_end:
            found.append(f"log ends at {log.log_end_offset}, flushed up to {self.flushed_end}")
        found += _overlaps(log) + _wrong_lookups(log, present)
        end = log.log_end_offset
        append(log, b"new", b"new")
        if log.flush() != end + 1:
            found.append("the recovered log does not take a new record")
        return found


def _overlaps(log: PartitionLog) -> list[str]:
    """Segments that reach into the next one."""
    found = []
    for segment, following in pairwise(log.segments):
        data = segment.file.read(0, segment.file.size())
        last = max((header.last_offset for _, header in iterate_headers(data)), default=-1)
        if last >= following.base_offset:
            found.append(f"{segment.path()} reaches to {last}, into {following.path()}")
    return found


def _wrong_lookups(log: PartitionLog, present: Written) -> list[str]:
    """Every record must be found by its time, which grows with the offset."""
    found = []
    for offset in present:
        at = log.find_by_timestamp(FIRST_TIMESTAMP + offset, log.log_end_offset)
        if at is None or at.offset != offset:
            found.append(f"the time of offset {offset} leads to {at}")
    return found


def append(log: PartitionLog, key: bytes, value: bytes) -> None:
    builder = BatchBuilder()
    builder.append(key, value, timestamp=FIRST_TIMESTAMP + log.log_end_offset)
    batch = builder.build()
    epoch = LeaderEpoch(max(0, log.latest_epoch))
    log.append(list(iterate_headers(batch)), memoryview(batch), epoch)


def read_records(log: PartitionLog) -> Written:
    """Every record in the log by its offset; offsets must grow."""
    records: Written = {}
    position, last = int(log.log_start_offset), -1
    while position < log.log_end_offset:
        data = log.read(Offset(position), 300, log.log_end_offset, at_least_one=True)
        if not data:
            break
        for at, header in iterate_headers(data):
            for record in iterate_records(data, at, header):
                assert record.offset > last, "an offset came twice"
                last = record.offset
                records[last] = (bytes(record.key or b""), bytes(record.value or b""))
            position = header.last_offset + 1
    return records


class CompactionScript:
    """One run. `skipped_sync_sites` takes single syncs away from the product."""

    def __init__(
        self, skipped_sync_sites: frozenset[str] = frozenset(), *, dies_at: str = ".log.deleted"
    ) -> None:
        self._dies_at = dies_at
        self.clock = SteppedClock()
        self.points: list[CompactionCrashPoint] = []
        self.operations: list[Operation] = []
        self.disk = SimulatedFileSystem(self.clock.now_ms)
        self.disk.faults.skipped_sync_sites = set(skipped_sync_sites)
        self.written: Written = {}
        self.flushed_end = 0
        self.directory: LogDirectory
        self.log: PartitionLog
        self._die_at: Callable[[Operation], bool] = lambda _operation: False

    def run(self) -> None:
        self._open()
        self._fill(24)
        self._compact()
        self._fill(6)
        self._die_while_compacting()  # by now several segments fit into one
        self._fill(12)
        self._compact()
        self._fill(6)
        self._compact()
        self.directory.close()

    def _open(self) -> None:
        self.disk.observer = self._observe
        self.directory = open_directory(self.disk, self.clock, seed=1)
        self.log = self.directory.create(PARTITION, TOPIC_ID, CONFIG)

    def _fill(self, count: int) -> None:
        """Many values of few keys, and some keys that come only once; all of it flushed."""
        for _ in range(count):
            offset = int(self.log.log_end_offset)
            key = b"once%d" % offset if offset % 8 == 0 else b"k%d" % (offset % 3)
            value = b"v%d" % offset
            self.written[offset] = (key, value)
            append(self.log, key, value)
        self.directory.checkpoint()
        self.flushed_end = int(self.log.flushed_offset)
        assert self.flushed_end == self.log.log_end_offset

    def _compact(self) -> None:
        log = self.log
        plan = plan_compaction(
            log.segment_facts,
            log.config,
            first_dirty_offset=0,
            first_unstable_offset=log.compactable_offset(log.log_end_offset),
            now_ms=self.clock.now_ms(),
        )
        assert plan is not None
        request = CompactionRequest(
            log.directory,
            tuple(SegmentRange(s.base_offset, s.next_offset, s.size) for s in plan.segments),
            now_ms=self.clock.now_ms(),
            delete_retention_ms=1_000,
            segment_bytes=CONFIG.segment_bytes,
            index_interval_bytes=CONFIG.index_interval_bytes,
        )
        before = len(read_records(log))
        assert apply_replacements(log, compact_log(log.files, request))
        assert len(read_records(log)) < before
        self.clock.ms += 10
        log.remove_deleted(self.clock.now_ms())

    def _die_while_compacting(self) -> None:
        """Kill the process right after a rename; the next one must finish or undo it."""
        self._die_at = lambda step: step.kind == "rename" and self._dies_at in step.path
        try:
            self._compact()
        except ProcessDied:
            self._die_at = lambda _operation: False
            self.disk = self.disk.after_kill()
            self._open()
        else:
            raise AssertionError("there was nothing to die in the middle of")

    def _observe(self, operation: Operation) -> None:
        self.operations.append(operation)
        point = CompactionCrashPoint(
            operation, self.disk.copy(), dict(self.written), self.flushed_end
        )
        self.points.append(point)
        if self._die_at(operation):
            raise ProcessDied
