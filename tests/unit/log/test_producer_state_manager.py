"""Producer state at the log's end, and the snapshots of it that are kept."""

from headrace.core.ids import Offset
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state_manager import ProducerStateManager
from tests.simulation.disk import SimulatedFileSystem
from tests.support.logs import append, batch, open_log, simulated_disk

PATH = "/data/orders-0"


def written(disk: SimulatedFileSystem, batches: int = 6) -> PartitionLog:
    """Two batches to a segment."""
    log = open_log(disk, LogConfig(segment_bytes=200))
    for sequence in range(batches):
        append(log, batch(producer_id=5, sequence=sequence))
    return log


def snapshots(disk: SimulatedFileSystem) -> list[int]:
    names = disk.list_directory(PATH)
    return [int(n.partition(".")[0]) for n in names if n.endswith(".snapshot")]


def last_sequence(manager: ProducerStateManager) -> int:
    assert manager.states is not None
    producer = manager.states.get(5)
    assert producer is not None
    return producer.batches[-1].last_sequence


def test_there_is_a_snapshot_at_the_start_of_each_segment() -> None:
    disk = simulated_disk()
    log = written(disk)
    assert snapshots(disk) == [s.base_offset for s in log.segments.all[1:]]
    assert log.producer_state.snapshots == tuple(snapshots(disk))


def test_states_are_loaded_from_the_newest_snapshot_and_what_came_since() -> None:
    disk = simulated_disk()
    log = written(disk)
    manager = ProducerStateManager(disk, PATH)
    manager.snapshots = log.producer_state.snapshots
    manager.load(log.segments.all, log.log_end_offset)
    assert last_sequence(manager) == 5


def test_a_bad_snapshot_costs_only_time() -> None:
    disk = simulated_disk()
    log = written(disk)
    newest = log.producer_state.snapshots[-1]
    disk.write_file(f"{PATH}/{newest:020d}.snapshot", b"garbage")
    manager = ProducerStateManager(disk, PATH)
    manager.snapshots = log.producer_state.snapshots
    manager.load(log.segments.all, log.log_end_offset)
    assert last_sequence(manager) == 5
    assert newest not in snapshots(disk)


def test_a_truncation_leaves_the_snapshots_below_it_and_loads_anew() -> None:
    disk = simulated_disk()
    log = written(disk)
    before = snapshots(disk)
    log.producer_state.truncate(Offset(before[0]))
    assert snapshots(disk) == before[:1]
    assert log.producer_state.states is None


def test_the_newest_snapshot_outlives_the_segments_it_was_taken_for() -> None:
    disk = simulated_disk()
    log = written(disk)
    newest = snapshots(disk)[-1]
    log.producer_state.delete_snapshots_before(Offset(100))
    assert snapshots(disk) == [newest]
    assert log.producer_state.covers(Offset(newest))
    assert not log.producer_state.covers(Offset(newest + 1))
