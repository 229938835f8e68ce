"""A data directory with a past: rolled segments, two leader epochs, producers, a compaction.

Made once, copied for each test. Two states of it: closed cleanly, and killed with half of the
log past the recovery point.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from headrace.log.checkpoints import find_offsets
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS
from headrace.log.names import LOG, RECOVERY_POINTS, offset_name
from headrace.log.real_files import RealFileSystem
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.records.header import iterate_headers
from headrace.testing import Broker
from tests.faults.load import wait_until
from tests.faults.wire import Found, Wire
from tests.support.batches import FIXED_TIMESTAMP_MS, Batch

TOPIC, TRIMMED, COMPACTED = "events", "trimmed", "latest"
# So many that the recovery point between the lives is inside a segment.
BATCHES_PER_LIFE = 43
RECORDS_PER_BATCH = 3
SMALL = {"internal.segment.bytes": "1500", "index.interval.bytes": "200"}
KEYS = 5
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "3600000"}


class Place(NamedTuple):
    """Where a batch lies."""

    path: Path
    position: int
    size: int
    base_offset: int


class Stored:
    """A copy of the directory, for one test to spoil."""

    def __init__(self, path: Path, records: list[Found], producer_id: int) -> None:
        self.path = path
        self.records = records
        self.producer_id = producer_id

    def copy(self, path: Path) -> Stored:
        shutil.copytree(self.path, path)
        return Stored(path, self.records, self.producer_id)

    def broker(self, **settings: str) -> Broker:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Broker(data_dir=self.path, settings={**SETTINGS, **given})

    @property
    def log(self) -> Path:
        return self.path / f"{TOPIC}-0"

    @property
    def metadata(self) -> Path:
        return self.path / "__cluster_metadata-0"

    def segments(self, suffix: str = ".log") -> list[Path]:
        """Files of the main topic, oldest first."""
        return sorted(self.log.glob(f"*{suffix}"))

    def batches(self) -> list[Place]:
        """Every batch of the main topic."""
        return [
            Place(path, position, header.size, header.base_offset)
            for path in self.segments()
            for position, header in iterate_headers(path.read_bytes())
        ]

    def recovery_point(self) -> int:
        points = find_offsets(RealFileSystem(), str(self.path / RECOVERY_POINTS))
        assert points is not None
        return next(offset for tp, offset in points.items() if tp.topic == TOPIC)

    def last_batch(self) -> Batch:
        """The last batch its producer sent, to be sent again."""
        return batch(self.producer_id, 2 * BATCHES_PER_LIFE - 1)


def batch(producer_id: int, number: int) -> Batch:
    """One of many that differ, a second apart."""
    values = [
        (b"key-%d" % index, b"batch %d record %d" % (number, index))
        for index in range(RECORDS_PER_BATCH)
    ]
    return Batch(
        values,
        base_timestamp_ms=FIXED_TIMESTAMP_MS + number * 1000,
        timestamp_step_ms=10,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number * RECORDS_PER_BATCH,
    )


def make_stored(path: Path, *, killed: bool) -> Stored:
    """Two lives of a broker; the second ends cleanly or by a kill."""
    # Compaction waits for recovery points; the second life must not move them.
    often = {**SETTINGS, "log.flush.offset.checkpoint.interval.ms": "50"}
    with Broker(data_dir=path, settings=often) as broker:
        broker.create_topic(TOPIC, configs=SMALL)
        broker.create_topic(TRIMMED, configs=SMALL)
        broker.create_topic(COMPACTED, configs=SMALL)
        with Wire(broker.port) as wire:
            producer_id = wire.producer_id()
            for number in range(BATCHES_PER_LIFE):
                _good(wire.produce(TOPIC, batch(producer_id, number).encode()))
                _good(wire.produce(TRIMMED, batch(-1, number).but(base_sequence=-1).encode()))
                values = [(b"key-%d" % (number % KEYS), b"%d" % number)]
                _good(wire.produce(COMPACTED, Batch(values).encode()))
            _delete_before(wire, TRIMMED, 50)
            # Only now, so that one compaction sees all of it.
            wire.alter(COMPACTED, {"cleanup.policy": "compact"})
        _wait_for_hole(path)
    broker = Broker(data_dir=path, settings=SETTINGS)
    broker.start()
    with Wire(broker.port) as wire:
        for number in range(BATCHES_PER_LIFE, 2 * BATCHES_PER_LIFE):
            _good(wire.produce(TOPIC, batch(producer_id, number).encode()))
        records = wire.records(TOPIC)
    if killed:
        broker.kill()
    broker.stop()
    return Stored(path, records, producer_id)


def _wait_for_hole(path: Path) -> None:
    """All in the oldest segment has newer values: it stays, empty, before the next one."""
    oldest = path / f"{COMPACTED}-0" / offset_name(0, LOG)

    def is_empty() -> bool:
        try:
            return oldest.stat().st_size == 0
        except FileNotFoundError:
            return False  # on its way to being replaced

    wait_until(is_empty, "no compaction")
    wait_until((path / CLEANER_OFFSETS).exists, "no compaction")


def _good(answer: object) -> None:
    assert getattr(answer, "error_code") == 0, answer  # noqa: B009 - any kind of answer


def _delete_before(wire: Wire, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    answer = wire.call(request, 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].low_watermark == offset
