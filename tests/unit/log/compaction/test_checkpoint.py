"""Up to where a partition is compacted is remembered, and never trusted blindly."""

from __future__ import annotations

from headrace.core.ids import TopicPartition
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS, CleanerCheckpoint
from tests.simulation.disk import SimulatedFileSystem

TP = TopicPartition("orders", 3)
OTHER = TopicPartition("other", 0)


def _files() -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    return files


def test_offsets_are_kept_across_a_restart_in_kafkas_format() -> None:
    files = _files()
    checkpoint = CleanerCheckpoint(files, "/data")
    assert checkpoint.first_dirty_offset(TP, 5, 100) == 5
    checkpoint.update(TP, 42)
    assert files.read_file(f"/data/{CLEANER_OFFSETS}") == b"0\n1\norders 3 42\n"
    assert CleanerCheckpoint(files, "/data").first_dirty_offset(TP, 5, 100) == 42


def test_an_offset_outside_the_log_makes_everything_dirty() -> None:
    checkpoint = CleanerCheckpoint(_files(), "/data")
    checkpoint.update(TP, 42)
    assert checkpoint.first_dirty_offset(TP, 50, 100) == 50
    assert checkpoint.first_dirty_offset(TP, 5, 30) == 5


def test_partitions_that_are_gone_are_forgotten() -> None:
    files = _files()
    checkpoint = CleanerCheckpoint(files, "/data")
    checkpoint.update(TP, 42)
    checkpoint.update(OTHER, 7)
    checkpoint.retain([OTHER])
    again = CleanerCheckpoint(files, "/data")
    assert again.first_dirty_offset(TP, 0, 100) == 0
    assert again.first_dirty_offset(OTHER, 0, 100) == 7


def test_garbage_counts_as_nothing_compacted() -> None:
    files = _files()
    files.write_file(f"/data/{CLEANER_OFFSETS}", b"\xff\x00 garbage")
    assert CleanerCheckpoint(files, "/data").first_dirty_offset(TP, 3, 100) == 3
