"""Compaction of a real partition log: read while it happens, closed, killed and opened again."""

from __future__ import annotations

from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.plan import plan_compaction
from headrace.log.compaction.request import CompactionRequest, CompactionResult, SegmentRange
from headrace.log.compaction.swap import apply_replacements
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import BatchBuilder
from headrace.protocol.records.header import iterate_headers
from tests.simulation.disk import SimulatedFileSystem
from tests.support.log_checks import log_problems

DIRECTORY = "/data/t-0"
CONFIG = LogConfig(
    cleanup_policy=frozenset(("compact",)),
    segment_bytes=600,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
)


class Clock:
    """Stands still at one time."""

    def now_ms(self) -> int:
        return 5_000

    def monotonic_ms(self) -> float:
        return 5_000.0


def _open(files: SimulatedFileSystem, recovery_point: int = 0, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(
        files, DIRECTORY, CONFIG, Clock(), recovery_point=recovery_point, clean=clean
    )


def _append(log: PartitionLog, *pairs: tuple[str, str], producer: int = -1, seq: int = -1) -> bool:
    builder = BatchBuilder()
    for key, value in pairs:
        builder.append(key.encode(), value.encode(), timestamp=1_000 + log.log_end_offset)
    batch = builder.build(0, producer, 0 if producer >= 0 else -1, seq)
    view = memoryview(batch)
    return log.append(list(iterate_headers(batch)), view, LeaderEpoch(0)).duplicate


def _fill(log: PartitionLog) -> None:
    """Sixty batches of three records over twenty keys; the older segments are on disk."""
    for number in range(60):
        _append(log, *[(f"k{(number * 3 + i) % 20}", f"{number}.{i}") for i in range(3)])
    log.flush()
    log.flush_state.checkpoint_stored(
        log.checkpoint()
    )  # as the log directory does once it is on disk


def _compact(log: PartitionLog, segment_bytes: int = 600) -> CompactionResult:
    plan = plan_compaction(
        log.segment_facts,
        log.config,
        first_dirty_offset=0,
        first_unstable_offset=log.compactable_offset(log.log_end_offset),
        now_ms=5_000,
    )
    assert plan is not None
    return compact_log(
        log.files,
        CompactionRequest(
            log.directory,
            tuple(SegmentRange(s.base_offset, s.next_offset, s.size) for s in plan.segments),
            now_ms=5_000,
            delete_retention_ms=1_000,
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            producers=tuple(log.active_producers().items()),
        ),
    )


def _read_all(log: PartitionLog, start: int = 0) -> list[Record]:
    """As a consumer does: from where the last answer ended to the log's end."""
    records: list[Record] = []
    position = start
    while position < log.log_end_offset:
        data = log.read(Offset(position), 250, log.log_end_offset, at_least_one=True)
        if not data:
            break
        for at, header in iterate_headers(data):
            records += [r for r in iterate_records(data, at, header) if r.offset >= position]
            position = header.last_offset + 1
    return records


def _newest(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def test_a_compacted_log_is_read_from_every_offset() -> None:
    log = _open(SimulatedFileSystem())
    _fill(log)
    before = _read_all(log)
    assert apply_replacements(log, _compact(log))
    after = _read_all(log)
    assert len(after) < len(before) / 2
    assert _newest(after) == _newest(before)
    assert set(after) <= set(before)
    for start in range(log.log_end_offset):
        assert _read_all(log, start) == [r for r in after if r.offset >= start]
        found = log.find_by_timestamp(1_000 + start, log.log_end_offset)
        due = next((r.offset for r in after if r.timestamp >= 1_000 + start), None)
        assert (found.offset if found else None) == due
    assert log_problems(log) == []


def test_segments_that_lost_every_record_are_stepped_over() -> None:
    log = _open(SimulatedFileSystem())
    _fill(log)
    before = _read_all(log)
    assert apply_replacements(log, _compact(log, segment_bytes=1))
    assert [segment.size for segment in log.segments].count(0) > 3
    assert _newest(_read_all(log)) == _newest(before)
    _append(log, ("k1", "newest"))
    assert _newest(_read_all(log))[b"k1"] == b"newest"
    assert log.segment_facts[0].size == 0


def test_readers_see_a_whole_log_at_every_step_of_a_replacement() -> None:
    """Also through segments whose files nobody has opened yet."""
    files = SimulatedFileSystem()
    log = _open(files)
    _fill(log)
    truth = _newest(_read_all(log))
    log.close()
    log = _open(files, log.log_end_offset, clean=True)
    result = _compact(log)
    looks = 0

    def look(_: object) -> None:
        nonlocal looks
        looks += 1
        files.observer = lambda _: None
        assert _newest(_read_all(log)) == truth
        files.observer = look

    files.observer = look
    assert apply_replacements(log, result)
    files.observer = lambda _: None
    assert looks > 10
    assert _newest(_read_all(log)) == truth
    assert log_problems(log) == []


def test_a_compacted_log_is_opened_again_after_a_stop_and_after_a_kill() -> None:
    for clean in (True, False):
        files = SimulatedFileSystem()
        log = _open(files)
        _fill(log)
        assert apply_replacements(log, _compact(log))
        _append(log, ("k3", "last"))
        records, end = _read_all(log), log.log_end_offset
        point = log.recovery_point
        if clean:
            log.close()
            point = end
        again = _open(files.after_kill(), point, clean=clean)
        assert (again.log_end_offset, _read_all(again)) == (end, records)
        assert log_problems(again) == []


def test_a_producer_whose_records_are_gone_is_still_known_after_a_kill() -> None:
    files = SimulatedFileSystem()
    log = _open(files)
    _append(log, ("gone", "1"), ("gone", "2"), producer=7, seq=0)
    _fill(log)
    _append(log, ("gone", "3"))
    _fill(log)
    assert apply_replacements(log, _compact(log))
    assert b"1" not in _newest(_read_all(log)).values()
    disk = files.after_kill()
    for name in disk.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    again = _open(disk, log.recovery_point)
    assert _append(again, ("gone", "1"), ("gone", "2"), producer=7, seq=0), "a duplicate"
    assert not _append(again, ("gone", "4"), producer=7, seq=2)


def test_a_replacement_of_segments_that_have_gone_is_refused() -> None:
    log = _open(SimulatedFileSystem())
    _fill(log)
    result = _compact(log)
    log.advance_log_start(Offset(30))
    log.apply_retention(5_000, log.log_end_offset)
    records = _read_all(log, 30)
    assert not apply_replacements(log, result)
    assert _read_all(log, 30) == records
    assert not [n for n in log.files.list_directory(DIRECTORY) if n.endswith(".cleaned")]
