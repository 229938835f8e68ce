"""What may be deleted at the old end of a log."""

from typing import Any

import pytest

from headrace.core.ids import Offset
from headrace.log import retention
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.retention import expired_segments
from headrace.log.segment import Segment
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    ToldClock,
    append,
    batch,
    fill,
    open_directory,
    open_log,
    read_all,
    simulated_disk,
)

DAY_MS = 24 * 3600 * 1000


def filled(**config: object) -> PartitionLog:
    """Ten batches at START, START + 10, …, three to a segment: 0-2, 3-5, 6-8, 9."""
    chosen = {"segment_bytes": 350, "retention_ms": -1, **config}
    log = open_log(simulated_disk(), LogConfig(**chosen))  # type: ignore[arg-type]  # by name
    fill(log, 10)
    return log


def test_old_segments_go_when_their_newest_record_is_too_old() -> None:
    log = filled(retention_ms=100)
    assert log.apply_retention(START_MS + 120, Offset(10)) == []
    deleted = log.apply_retention(START_MS + 121, Offset(10))
    [(path, reason)] = deleted
    assert path.endswith("/00000000000000000000.log")
    assert reason == "older than retention.ms=100"
    assert log.log_start_offset == 3
    assert [header.base_offset for header in read_all(log)] == list(range(3, 10))


def test_when_everything_is_too_old_the_log_is_empty_and_goes_on() -> None:
    log = filled(retention_ms=100)
    assert len(log.apply_retention(START_MS + DAY_MS, Offset(10))) == 4
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (10, 10, 0)
    assert append(log, batch()).first_offset == 10


def test_an_empty_log_has_nothing_to_delete() -> None:
    log = open_log(simulated_disk(), LogConfig(retention_ms=1, retention_bytes=0))
    assert log.apply_retention(START_MS + DAY_MS, Offset(0)) == []


def test_size_retention_keeps_at_least_what_was_asked_for() -> None:
    log = filled(retention_bytes=400)
    log.apply_retention(START_MS, Offset(10))
    assert log.log_start_offset > 0
    assert log.size_bytes >= 400
    assert log.size_bytes - log.segments.all[0].size < 400


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    log = filled(retention_ms=100)
    log.apply_retention(START_MS + DAY_MS, Offset(7))
    assert log.log_start_offset == 6
    log.apply_retention(START_MS + DAY_MS, Offset(9))
    assert log.log_start_offset == 9


def test_a_topic_that_only_compacts_keeps_old_records() -> None:
    log = filled(retention_ms=100, retention_bytes=0, cleanup_policy=frozenset(["compact"]))
    assert log.apply_retention(START_MS + DAY_MS, Offset(10)) == []


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    log = filled(cleanup_policy=frozenset(["compact"]))
    log.advance_log_start(Offset(7))
    assert len(log.apply_retention(START_MS, Offset(10))) == 2
    assert log.log_start_offset == 7
    assert log.segments.all[0].base_offset == 6


def test_file_time_counts_where_records_have_none() -> None:
    clock = ToldClock()
    disk = simulated_disk()
    disk._now_ms = clock.now_ms
    log = open_log(disk, LogConfig(retention_ms=100), clock=clock)
    append(log, batch(timestamps=[-1]))
    assert log.apply_retention(START_MS + 100, Offset(1)) == []
    assert len(log.apply_retention(START_MS + 101, Offset(1))) == 1


def test_epochs_before_the_log_start_are_forgotten() -> None:
    log = open_log(simulated_disk(), LogConfig(segment_bytes=350, retention_ms=100))
    for number in range(10):
        append(log, batch(timestamps=[START_MS + number * 10], value=b"x" * 25), epoch=number)
    log.apply_retention(START_MS + 151, Offset(10))
    assert log.epoch_for_offset(Offset(2)) == -1
    assert int(log.epoch_for_offset(log.log_start_offset)) == int(log.log_start_offset)


def test_producers_outlive_the_segments_they_wrote() -> None:
    disk = simulated_disk()
    log = open_log(disk, LogConfig(segment_bytes=350, retention_ms=100))
    append(log, batch(3, producer_id=5))
    fill(log, 9)
    log.apply_retention(START_MS + DAY_MS, Offset(12))
    log.flush()
    reopened = open_log(disk.after_kill(), log.config, recovery_point=0)
    assert reopened.log_start_offset == 12
    assert append(reopened, batch(3, producer_id=5)).duplicate


def test_the_log_start_moves_forward_only() -> None:
    log = filled()
    log.advance_log_start(Offset(4))
    log.advance_log_start(Offset(2))
    assert log.log_start_offset == 4


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, LogConfig()), 10)
    directory.logs[ORDERS].advance_log_start(Offset(4))
    directory.checkpoint_log_starts(durable=True)
    again = open_directory(disk.after_kill())
    assert again.create(ORDERS, TOPIC_ID, LogConfig()).log_start_offset == 4


def test_a_log_that_ends_below_its_start_begins_anew_there() -> None:
    log = open_log(simulated_disk())
    fill(log, 3)
    log.close()
    again = open_log(log.files, clean=True, log_start_offset=8)
    assert (again.log_start_offset, again.log_end_offset) == (8, 8)


@pytest.mark.parametrize("fresh", [1, 3])
def test_a_segment_written_to_since_it_was_judged_stays(
    monkeypatch: pytest.MonkeyPatch, fresh: int
) -> None:
    """Retention decides in a worker while the event loop appends, and maybe rolls."""
    log = filled(retention_ms=100)

    def judge_and_be_late(*args: Any, **kwargs: Any) -> list[tuple[Segment, str]]:
        expired = expired_segments(*args, **kwargs)
        assert len(expired) == 4
        for _ in range(fresh):
            append(log, batch(timestamps=[START_MS + 150], value=b"x" * 25))
        return expired

    monkeypatch.setattr(retention, "expired_segments", judge_and_be_late)
    assert len(log.apply_retention(START_MS + DAY_MS, Offset(10))) == 3
    assert [header.base_offset for header in read_all(log)] == list(range(9, 10 + fresh))
