"""Leader epochs are loaded when they are first needed: from their file, or else from batches."""

from headrace.core.ids import Offset
from headrace.log.leader_epoch_cache import LeaderEpochCache
from headrace.log.names import LEADER_EPOCHS
from headrace.log.partition_log import PartitionLog
from tests.simulation.disk import SimulatedFileSystem
from tests.support.logs import append, batch, open_log, simulated_disk

PATH = "/data/orders-0"


def written(disk: SimulatedFileSystem) -> PartitionLog:
    log = open_log(disk)
    for epoch in (1, 1, 4):
        append(log, batch(), epoch=epoch)
    log.checkpoint()
    return log


def loaded(disk: SimulatedFileSystem, log: PartitionLog) -> tuple[tuple[int, int], ...]:
    cache = LeaderEpochCache(disk, PATH)
    return cache.load(log.segments.all, log.log_start_offset, log.log_end_offset).entries


def test_the_file_is_believed_if_it_knows_the_last_batch() -> None:
    disk = simulated_disk()
    log = written(disk)
    disk.write_file(f"{PATH}/{LEADER_EPOCHS}", b"0\n2\n2 0\n4 1\n")
    assert loaded(disk, log) == ((2, 0), (4, 1))


def test_a_file_that_is_older_than_the_data_is_made_anew_from_it() -> None:
    disk = simulated_disk()
    log = written(disk)
    disk.write_file(f"{PATH}/{LEADER_EPOCHS}", b"0\n1\n1 0\n")
    assert loaded(disk, log) == ((1, 0), (4, 2))
    disk.remove(f"{PATH}/{LEADER_EPOCHS}")
    assert loaded(disk, log) == ((1, 0), (4, 2))


def test_what_lies_outside_of_the_log_is_left_out() -> None:
    disk = simulated_disk()
    log = written(disk)
    cache = LeaderEpochCache(disk, PATH)
    assert cache.load(log.segments.all, Offset(1), Offset(3)).entries == ((1, 1), (4, 2))


def test_an_emptied_log_has_a_file_to_write_anew() -> None:
    disk = simulated_disk()
    written(disk)
    cache = LeaderEpochCache(disk, PATH)
    states = [cache.changed]
    cache.clear()
    states.append(cache.changed)
    cache.store()
    states.append(cache.changed)
    assert states == [False, True, False]
    assert disk.read_file(f"{PATH}/{LEADER_EPOCHS}") == b"0\n0\n"
