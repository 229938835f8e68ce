"""A crash at any step of a compaction leaves the old segments or the new, and no key is lost."""

from __future__ import annotations

from random import Random

import pytest

from headrace.core.files import FileSystem
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import Replacement
from headrace.log.compaction.swap import apply_replacements, recover_swaps
from headrace.log.names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, offset_name
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import iterate_headers
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import (
    KEEP_CONTENTS,
    KEEP_EVERYTHING,
    KEEP_NAMES,
    LOSE_EVERYTHING,
    Seeded,
    Survival,
    Torn,
)
from tests.support.compacted_log import DIRECTORY, CompactedLog

SURVIVALS: list[Survival] = [
    LOSE_EVERYTHING,
    KEEP_EVERYTHING,
    KEEP_NAMES,
    KEEP_CONTENTS,
    Torn(0),
    *(Seeded(Random(seed)) for seed in range(6)),
]


def _start() -> tuple[SimulatedFileSystem, CompactedLog]:
    """Eight segments with many superseded records, all of it on disk."""
    files = SimulatedFileSystem()
    log = CompactedLog(files)
    for first in range(0, 80, 10):
        rows = [
            Record(o, 100 + o, b"k%d" % (o * 7 % 23), b"%d" % o) for o in range(first, first + 10)
        ]
        log.add_segment([encode_batch(rows[:5]), encode_batch(rows[5:], codec=4)])
    files.sync_everything()
    return files, log


def _newest(log: CompactedLog) -> dict[bytes | None, Record]:
    return {record.key: record for record in log.records()}


def _recovered(files: SimulatedFileSystem, end_offset: int) -> CompactedLog:
    recover_swaps(files, DIRECTORY, files.list_directory(DIRECTORY))
    log = CompactedLog(files)
    log.end_offset = end_offset
    return log


def _indexes_fit(log: CompactedLog) -> bool:
    """Whether every index that is there points to batches of its data file."""
    for segment in log.segments:
        path = f"{DIRECTORY}/{offset_name(segment.base_offset, '')}"
        positions = dict(iterate_headers(log.files.read_file(path + LOG)))
        if not log.files.exists(path + INDEX):
            continue
        entries = log.files.read_file(path + INDEX)
        for at in range(0, len(entries), 8):
            relative = int.from_bytes(entries[at : at + 4], "big")
            header = positions.get(int.from_bytes(entries[at + 4 : at + 8], "big"))
            if header is None or header.last_offset != segment.base_offset + relative:
                return False
        if segment.size and not log.files.read_file(path + TIME_INDEX):
            return False
    return True


def _crashes(skipped_sync: str = "") -> list[str]:
    """Crash after every step in every way; what went wrong in the log that was found then."""
    files, log = _start()
    truth = _newest(log)
    originals = {record.offset: record for record in log.records()}
    images: list[tuple[Operation, SimulatedFileSystem]] = []
    files.observer = lambda operation: images.append((operation, files.copy()))
    if skipped_sync:
        files.faults.skipped_sync_sites = {skipped_sync}
    result = log.compact(log.request(segment_bytes=3 * log.segments[0].size))
    assert len(result.replacements) > 2
    wrong: list[str] = []
    for operation, image in images:
        for survival in (None, *SURVIVALS):
            disk = image.copy()
            crashed = disk.after_power_cut(survival) if survival else disk.after_kill()
            try:
                found = _recovered(crashed, log.end_offset)
                assert _newest(found) == truth
                assert all(originals[r.offset] == r for r in found.records())
                assert _indexes_fit(found)
                names = crashed.list_directory(DIRECTORY)
                assert not [name for name in names if name.endswith((CLEANED, SWAP))]
            except Exception as error:
                wrong.append(f"{operation}: {error!r}")
    return wrong


def test_a_crash_at_any_step_loses_nothing() -> None:
    assert _crashes() == []


@pytest.mark.parametrize("place", ["data", "index"])
def test_the_crash_test_notices_a_missing_sync(place: str) -> None:
    files, log = _start()
    log.compact(log.request(segment_bytes=3 * log.segments[0].size))
    ending = LOG + CLEANED if place == "data" else INDEX + CLEANED
    sites = {op.site for op in files.operations if op.kind == "sync" and op.path.endswith(ending)}
    assert len(sites) == 1
    assert _crashes(skipped_sync=sites.pop())


def test_an_uncommitted_replacement_is_undone() -> None:
    files, log = _start()
    before = log.records()
    for suffix in (LOG, INDEX):
        files.write_file(f"{DIRECTORY}/{offset_name(10, suffix)}{CLEANED}", b"half")
    files.write_file(f"{DIRECTORY}/{offset_name(10, TIME_INDEX)}{SWAP}", b"too early")
    assert recover_swaps(files, DIRECTORY, files.list_directory(DIRECTORY))
    assert log.records() == before
    assert not [n for n in files.list_directory(DIRECTORY) if n.endswith((CLEANED, SWAP))]


def test_nothing_to_recover_touches_nothing() -> None:
    files, _ = _start()
    before = len(files.operations)
    assert not recover_swaps(files, DIRECTORY, files.list_directory(DIRECTORY))
    assert len(files.operations) == before


def test_after_a_refusal_no_later_segment_is_replaced() -> None:
    """Its tombstones may be all that keeps the values of the refused one deleted."""
    files, log = _start()
    result = compact_log(files, log.request(segment_bytes=3 * log.segments[0].size))
    first, second, *_ = result.replacements
    asked: list[Replacement] = []

    class Refusing:
        def __init__(self) -> None:
            self.files: FileSystem = files
            self.directory = DIRECTORY

        def replace_segments(self, replacement: Replacement) -> bool:
            asked.append(replacement)
            if replacement == second:
                return False
            log.replace(replacement)
            return True

    assert not apply_replacements(Refusing(), result)
    assert asked == [first, second]
    left = {name[:20] for name in files.list_directory(DIRECTORY) if name.endswith(CLEANED)}
    assert left <= {offset_name(second.base_offset, "")}
