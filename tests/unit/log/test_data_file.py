"""The data file of a segment: created whole or not at all, its end in one step."""

import errno

import pytest

from headrace.log.data_file import DataFile
from headrace.log.names import INDEX, TIME_INDEX
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.support.logs import simulated_disk

PATH = "/data/orders-0"


def disk_with_directory() -> SimulatedFileSystem:
    disk = simulated_disk()
    disk.make_directory(PATH)
    return disk


def test_what_an_earlier_file_of_this_name_has_left_goes() -> None:
    disk = disk_with_directory()
    data = DataFile(disk, PATH, 7)
    for suffix in (".log", INDEX, TIME_INDEX):
        disk.write_file(data.path(suffix), b"left over")
    data.create((INDEX, TIME_INDEX))
    assert disk.list_directory(PATH) == ["00000000000000000007.log"]
    assert data.file.size() == 0
    assert data.end == (7, 0)


def test_a_file_that_could_not_be_created_whole_is_not_there() -> None:
    disk = disk_with_directory()
    data = DataFile(disk, PATH, 7)
    disk.write_file(data.path(INDEX), b"left over")
    disk.faults.rules = [Fault("remove", errno.EIO, INDEX, times=1)]
    with pytest.raises(OSError, match="error"):
        data.create((INDEX, TIME_INDEX))
    assert not data.exists


def test_space_that_was_reserved_and_not_used_is_given_back() -> None:
    disk = disk_with_directory()
    data = DataFile(disk, PATH, 0)
    data.create(())
    data.file.append([b"x" * 100])
    data.end = (1, 60)
    data.release_space()
    assert data.file.size() == 60
