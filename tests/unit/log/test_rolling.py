"""When a segment is full."""

import errno
import sys
from pathlib import Path

import pytest

from headrace.core.errors import StorageError
from headrace.core.ids import Offset
from headrace.log import descriptor_io
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.real_files import RealFileSystem
from headrace.log.rolling import roll_limit_ms
from tests.simulation.disk import SimulatedFileSystem
from tests.support.logs import (
    START_MS,
    ToldClock,
    append,
    batch,
    fill,
    open_log,
    read_all,
    simulated_disk,
)

YEAR_2100_MS = 4_102_444_800_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_rolls_before_it_would_grow_too_large() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_bytes=350))
    fill(log, 10)
    assert all(segment.size <= 350 for segment in log.segments)
    assert bases(log) == [0, 3, 6, 9]
    assert [header.base_offset for header in read_all(log)] == list(range(10))


def test_record_time_rolls_a_segment() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_ms=1000))
    for stamp in (0, 1000, 1001, 1500, 2002):
        append(log, batch(timestamps=[START_MS + stamp]))
    assert bases(log) == [0, 2, 4]


def test_the_clock_rolls_a_segment_whose_records_have_no_time() -> None:
    clock = ToldClock()
    log = open_log(simulated_disk(), LogConfig(segment_ms=1000), clock=clock)
    for _ in range(3):
        append(log, batch(timestamps=[-1]))
        clock.ms += 600
    assert bases(log) == [0, 2]


def test_the_first_timestamp_is_remembered_across_a_restart() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(segment_ms=1000))
    append(log, batch(timestamps=[START_MS]))
    log.close()
    log = open_log(disk.after_kill(), LogConfig(segment_ms=1000), clean=True, recovery_point=1)
    append(log, batch(timestamps=[START_MS + 1001]))
    assert bases(log) == [0, 1]


def test_a_full_index_rolls_a_segment() -> None:
    # Room for three time entries, one of which is kept for the end.
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=36)
    log = open_log(simulated_disk(), config)
    fill(log, 9)
    assert bases(log) == [0, 3, 6]


def test_an_offset_too_far_from_the_base_rolls_a_segment() -> None:
    log = open_log(simulated_disk())
    far = batch()
    far[0:8] = (2**31 + 5).to_bytes(8, "big")
    append(log, batch())
    log.append_as_follower(memoryview(far))
    assert bases(log) == [0, 1]
    assert [header.base_offset for header in read_all(log)] == [0, 2**31 + 5]


def test_a_roll_that_the_disk_refuses_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks after many logs tells it in a line, and anything else with its traceback."""
    files = RealFileSystem()
    log = PartitionLog.open(files, str(tmp_path / "t-0"), LogConfig(segment_ms=1000), ToldClock())
    append(log, batch())

    def is_full(path: str, *, create: bool) -> None:
        raise OSError(errno.ENOSPC, f"no space: {path} {create}")

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", is_full)
        with pytest.raises(StorageError, match="cannot roll"):
            log.roll_if_due(START_MS + 1001)
    assert log.roll_if_due(START_MS + 1001)
    assert bases(log) == [0, 1]
    files.close()


def test_a_segment_that_is_not_written_to_rolls_when_its_time_is_over() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_ms=1000))
    assert not log.roll_if_due(START_MS + 5000)
    append(log, batch())
    assert not log.roll_if_due(START_MS + 1000)
    assert log.roll_if_due(START_MS + 1001)
    assert bases(log) == [0, 1]


@pytest.mark.parametrize("stamp", [0, START_MS, YEAR_2100_MS])
def test_a_look_at_the_clock_counts_from_the_first_append(stamp: int) -> None:
    """Not from what the records say, nor from when the empty file was made."""
    clock = ToldClock()
    log = open_log(simulated_disk(), LogConfig(segment_ms=1000), clock=clock)
    clock.ms += 5000
    append(log, batch(timestamps=[stamp]))
    assert not log.roll_if_due(clock.ms)
    append(log, batch(timestamps=[stamp]))
    assert not log.roll_if_due(clock.ms + 1000)
    assert log.roll_if_due(clock.ms + 1001)
    clock.ms += 1001
    assert bases(log) == [0, 2]
    append(log, batch(timestamps=[stamp]))
    assert not log.roll_if_due(clock.ms + 1000)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize("stamp", [0, START_MS, YEAR_2100_MS])
def test_a_segment_that_was_loaded_is_as_old_as_its_last_change(stamp: int) -> None:
    clock = ToldClock()
    disk = SimulatedFileSystem(clock.now_ms)
    disk.make_directory("/")
    log = open_log(disk, LogConfig(segment_ms=1000), clock=clock)
    append(log, batch(timestamps=[stamp]))
    log.close()
    clock.ms += 600
    log = open_log(disk, LogConfig(segment_ms=1000), clock=clock, clean=True, recovery_point=1)
    assert not log.roll_if_due(clock.ms)
    assert not log.roll_if_due(clock.ms + 400)
    assert log.roll_if_due(clock.ms + 401)


@pytest.mark.parametrize("stamp", [0, START_MS, YEAR_2100_MS])
def test_records_of_any_age_stay_together_when_they_are_of_one_age(stamp: int) -> None:
    log = open_log(simulated_disk(), LogConfig(segment_ms=1000))
    for number in range(5):
        append(log, batch(timestamps=[stamp + number]))
    assert bases(log) == [0]


def test_a_new_config_takes_effect_at_once() -> None:
    log = open_log(simulated_disk())
    fill(log, 4)
    log.update_config(LogConfig(segment_bytes=200, segment_ms=10))
    append(log, batch(timestamps=[START_MS + 40]))
    append(log, batch(timestamps=[START_MS + 51]))
    assert bases(log) == [0, 4, 5]


def test_jitter_shortens_a_segment_by_less_than_it_says() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_bytes=100, retention_ms=-1))
    fill(log, 30)
    config = LogConfig(segment_ms=1000, segment_jitter_ms=300)
    limits = {roll_limit_ms(config, segment) for segment in log.segments}
    assert len(limits) > 10
    assert all(700 < limit <= 1000 for limit in limits)


def test_the_longest_compaction_lag_bounds_a_segments_time() -> None:
    log = open_log(simulated_disk())
    compacting = LogConfig(cleanup_policy=frozenset(["compact"]), max_compaction_lag_ms=500)
    assert roll_limit_ms(compacting, log.segments.all[0]) == 500
    assert roll_limit_ms(LogConfig(max_compaction_lag_ms=500), log.segments.all[0]) > 500


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets space aside")
def test_space_is_set_aside_for_a_segment_and_given_back_when_it_is_closed(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1 << 20, preallocate=True)
    clock = ToldClock()
    log = PartitionLog.open(RealFileSystem(), str(tmp_path / "t-0"), config, clock)
    append(log, batch(value=b"x" * 600_000))
    first = Path(log.segments.all[0].path())
    assert first.stat().st_size < 700_000
    assert first.stat().st_blocks * 512 >= 1 << 20
    append(log, batch(value=b"x" * 600_000))
    assert first.stat().st_blocks * 512 < 700_000
    second = Path(log.segments.all[1].path())
    assert second.stat().st_blocks * 512 >= 1 << 20
    log.close()
    assert second.stat().st_blocks * 512 < 700_000
    assert (
        len(read_all(PartitionLog.open(RealFileSystem(), str(tmp_path / "t-0"), config, clock)))
        == 2
    )


def test_appends_go_on_where_no_space_can_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(descriptor_io, "reserve", full)
    config = LogConfig(segment_bytes=350, preallocate=True)
    log = PartitionLog.open(RealFileSystem(), str(tmp_path / "t-0"), config, ToldClock())
    fill(log, 4)
    assert bases(log) == [0, 3]
    log.flush()
    again = PartitionLog.open(RealFileSystem(), str(tmp_path / "t-0"), config, ToldClock())
    assert again.log_end_offset == 4


def test_a_rolled_segment_stays_readable_up_to_its_last_offset() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_bytes=350))
    fill(log, 7)
    data = log.read(Offset(2), 10**6, log.log_end_offset)
    assert len(data) <= 350
    assert data
