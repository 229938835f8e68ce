"""Appends take the log's lock, on the event loop: it is never held while somebody syncs."""

from collections.abc import Callable

import pytest

from headrace.core.ids import Offset
from headrace.log.compaction.compactor import compact_log
from headrace.log.compaction.request import CompactionRequest, SegmentRange
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    fill,
    open_directory,
    simulated_disk,
)

CONFIG = LogConfig(segment_bytes=1000, retention_bytes=1, file_delete_delay_ms=0)


def replace(log: PartitionLog) -> None:
    ranges = [
        SegmentRange(s.base_offset, s.next_offset, s.size)
        for s in log.segments
        if s.next_offset <= log.recovery_point
    ]
    request = CompactionRequest(log.directory, tuple(ranges), START_MS, 0, 10_000)
    for each in compact_log(log.files, request).replacements:
        assert log.replace_segments(each)


@pytest.mark.parametrize(
    ("operation", "syncs"),
    [
        (lambda log: log.flush(), 1),
        (lambda log: log.checkpoint(), 3),
        (lambda log: log.apply_retention(START_MS, Offset(20)), 2),
        (replace, 3),
        (lambda log: log.truncate_to(Offset(5)), 3),
        (lambda log: log.truncate_to(Offset(0)), 3),
        (lambda log: log.truncate_fully_and_start_at(Offset(7)), 3),
    ],
    ids=["flush", "checkpoint", "retention", "replace", "truncate", "truncate to 0", "start anew"],
)
def test_nobody_who_appends_waits_for_a_sync(
    operation: Callable[[PartitionLog], None], syncs: int
) -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 20)
    directory.checkpoint()
    fill(log, 15)
    waiting: list[bool] = []
    disk.pause_point = lambda: waiting.append(log.lock.locked())
    operation(log)
    assert len(waiting) >= syncs
    assert not any(waiting)
