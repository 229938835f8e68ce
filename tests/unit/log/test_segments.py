"""The segments of a log in a row: which one is for an offset, and how they come and go."""

import errno

import pytest

from headrace.core.ids import Offset
from headrace.log.segment import Segment
from headrace.log.segments import LogSegments
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.support.logs import START_MS, simulated_disk

PATH = "/data/orders-0"


def segments_at(disk: SimulatedFileSystem, *bases: int) -> LogSegments:
    """Each holds the offsets up to the next one; the last one holds none."""
    disk.make_directory(PATH)
    row = LogSegments(disk, PATH, [Segment(disk, PATH, bases[0])])
    row.active.create_file()
    for base in bases[1:]:
        row.active.file.append([b"x" * 10])
        row.active.data.end = (base, 10)
        row.roll(Offset(base), START_MS)
    return row


def bases(row: LogSegments) -> list[int]:
    return [segment.base_offset for segment in row]


def test_a_segment_is_found_by_any_of_its_offsets() -> None:
    row = segments_at(simulated_disk(), 10, 20, 30)
    assert [row.number_for(offset) for offset in (5, 10, 19, 20, 29, 30, 99)] == [
        *(0, 0, 0),
        *(1, 1),
        *(2, 2),
    ]
    assert [s.base_offset for s in row.at_or_after(25)] == [20, 30]


def test_only_segments_with_something_behind_an_offset_reach_past_it() -> None:
    row = segments_at(simulated_disk(), 0, 10, 20)
    assert [s.base_offset for s in row.reaching_past(0)] == [0, 10, 20]
    assert [s.base_offset for s in row.reaching_past(10)] == [10, 20]
    assert row.reaching_past(20) == []


def test_a_row_that_was_looked_at_stays_as_it_was() -> None:
    row = segments_at(simulated_disk(), 0, 10)
    seen = row.all
    row.roll(Offset(20), START_MS)
    row.drop([seen[0]], START_MS)
    assert [segment.base_offset for segment in seen] == [0, 10]
    assert bases(row) == [10, 20]
    assert row.active.base_offset == 20


def test_files_of_dropped_segments_stay_until_they_are_due() -> None:
    disk = simulated_disk()
    row = segments_at(disk, 0, 10, 20)
    row.drop(row.all[:1], START_MS)
    row.drop(row.all[:1], START_MS + 5)
    due = row.take_due(START_MS + 4)
    assert [each.segment.base_offset for each in due] == [0]
    row.put_back(due)
    due = row.take_due()
    assert [each.segment.base_offset for each in due] == [0, 10]
    for each in due:
        each.remove()
        each.remove()  # gone already, and that is well
    assert disk.list_directory(PATH) == ["00000000000000000020.log"]


def test_a_segment_that_cannot_be_renamed_is_still_in_the_row() -> None:
    disk = simulated_disk()
    row = segments_at(disk, 0, 10)
    disk.faults.rules = [Fault("rename", errno.EIO, times=1)]
    with pytest.raises(OSError, match="error"):
        row.drop(row.all[:1], START_MS)
    assert bases(row) == [0, 10]
    row.drop(row.all[:1], START_MS)
    assert bases(row) == [10]


def test_a_row_that_begins_anew_has_one_empty_segment() -> None:
    disk = simulated_disk()
    row = segments_at(disk, 0, 10)
    row.reset_to(Offset(50), START_MS, START_MS)
    assert (bases(row), row.size_bytes) == ([50], 0)
    assert sorted(disk.list_directory(PATH)) == [
        "00000000000000000000.log.deleted",
        "00000000000000000010.log.deleted",
        "00000000000000000050.log",
    ]
