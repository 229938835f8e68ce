"""Indexes kept in step with a data file, and made anew where they are not."""

from collections.abc import Sequence

import pytest

from headrace.core.errors import CorruptBatch
from headrace.log.data_file import DataFile
from headrace.log.names import INDEX, TIME_INDEX
from headrace.log.segment_indexes import LAST, POSITION, SegmentIndexes
from headrace.protocol.records.header import parse_header
from headrace.protocol.records.patch import assign_offsets
from tests.simulation.disk import SimulatedFileSystem
from tests.support.logs import START_MS, batch, simulated_disk

PATH = "/data/orders-0"
EVERY_BATCH = 0


def data_on(disk: SimulatedFileSystem) -> DataFile:
    disk.make_directory(PATH)
    data = DataFile(disk, PATH, 100)
    data.create((INDEX, TIME_INDEX))
    return data


def fill(data: DataFile, indexes: SegmentIndexes, stamps: Sequence[int]) -> None:
    """A batch of one record for each timestamp."""
    for stamp in stamps:
        offset, position = data.end
        sent = batch(timestamps=[START_MS + stamp])
        assign_offsets(memoryview(sent), 0, offset, 1)
        header = parse_header(sent)
        data.file.append([sent])
        indexes.add_batch(position, len(sent), offset, header.max_timestamp, EVERY_BATCH)
        data.end = (offset + 1, position + len(sent))


def times(indexes: SegmentIndexes) -> list[tuple[int, int]]:
    index = indexes.time_index
    return [(t - START_MS, o) for t, o in map(index.entry, range(len(index)))]


def test_the_time_index_says_how_late_it_was_up_to_each_entry() -> None:
    data = data_on(simulated_disk())
    indexes = SegmentIndexes(data)
    fill(data, indexes, [5, 9, 7, 8, 12, 1])
    assert times(indexes) == [(9, 1), (12, 4)]
    assert (indexes.max_timestamp, indexes.max_timestamp_offset) == (START_MS + 12, 104)
    assert len(indexes.offset_index) == 5


def test_an_entry_that_points_to_no_batch_makes_both_indexes_anew() -> None:
    disk = simulated_disk()
    data = data_on(disk)
    fill(data, indexes := SegmentIndexes(data), [1, 2, 3, 4])
    indexes.persist(final=True)
    sound = disk.read_file(data.path(INDEX))
    disk.write_file(data.path(INDEX), sound[:-1] + b"\x01")
    found = SegmentIndexes(data)
    assert found.indexed_position(LAST) == 0, "a safe place to begin a scan"
    assert found.indexed_position(data.size, POSITION) < data.size
    assert times(found) == [(4, 3)]


def test_the_highest_timestamp_of_an_old_file_is_found_when_it_is_asked_for() -> None:
    data = data_on(simulated_disk())
    fill(data, indexes := SegmentIndexes(data), [1, 9, 3])
    indexes.persist(final=True)
    again = SegmentIndexes(data)
    again.forget_max_timestamp()
    assert (again.max_timestamp, again.max_timestamp_offset) == (START_MS + 9, 101)


def test_the_indexes_follow_a_file_that_was_cut() -> None:
    data = data_on(simulated_disk())
    fill(data, indexes := SegmentIndexes(data), [1, 9, 3, 4])
    indexes.persist(final=True)
    size = data.size // 4
    data.file.truncate(size)
    data.end = (101, size)
    indexes.truncate()
    assert (indexes.max_timestamp, indexes.max_timestamp_offset) == (START_MS + 1, 100)
    assert len(indexes.offset_index) == 0
    assert times(indexes) == []


def test_a_clean_end_is_found_behind_the_last_entry() -> None:
    disk = simulated_disk()
    data = data_on(disk)
    fill(data, indexes := SegmentIndexes(data), [1, 2, 3, 4])
    indexes.persist(final=True)
    assert SegmentIndexes(data).resume(EVERY_BATCH) == 104
    disk.write_file(data.path(INDEX), disk.read_file(data.path(INDEX))[:-1] + b"\x01")
    with pytest.raises(CorruptBatch):
        SegmentIndexes(data).resume(EVERY_BATCH)
