"""The small files beside the data, spoilt: the data is the truth, so nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS
from headrace.log.names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from headrace.replication.high_watermark_checkpoint import REPLICATION_OFFSETS
from tests.faults import damage
from tests.faults.load import wait_until
from tests.faults.stored import BATCHES_PER_LIFE, COMPACTED, KEYS, TOPIC, TRIMMED, Stored, batch
from tests.faults.test_damaged_indexes import everything_is_found
from tests.faults.wire import EARLIEST, LATEST, Wire

FIRST_LIFE = BATCHES_PER_LIFE * 3
spoilt = pytest.mark.parametrize("spoil", damage.ALL, ids=lambda each: each.__name__)


def newest_values(wire: Wire) -> dict[int, bytes | None]:
    """What the compacted topic says now, by key."""
    return {int(found.value or b"") % KEYS: found.value for found in wire.records(COMPACTED)}


NEWEST = {
    number % KEYS: b"%d" % number for number in range(BATCHES_PER_LIFE - KEYS, BATCHES_PER_LIFE)
}


@spoilt
def test_without_recovery_points_everything_is_checked_and_kept(
    stored: Stored, spoil: damage.Damage
) -> None:
    spoil(stored.path / RECOVERY_POINTS)
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
        # Compaction has left holes between segments, which must not pass for lost data.
        assert newest_values(wire) == NEWEST
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records


@pytest.mark.parametrize("offset", ["0", "1", "999999999", "18446744073709551616", "-5"])
def test_a_recovery_point_that_is_not_right_loses_nothing(stored: Stored, offset: str) -> None:
    lines = (stored.path / RECOVERY_POINTS).read_text().splitlines()
    changed = [f"{TOPIC} 0 {offset}" if line.startswith(TOPIC) else line for line in lines]
    (stored.path / RECOVERY_POINTS).write_text("\n".join(changed) + "\n")
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
        assert newest_values(wire) == NEWEST


@spoilt
def test_without_log_starts_a_log_begins_with_its_first_segment(
    stored: Stored, spoil: damage.Damage, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(stored.path / LOG_STARTS)
    first = int(sorted((stored.path / f"{TRIMMED}-0").glob("*.log"))[0].stem)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.offset(TRIMMED, EARLIEST) == first <= 50
        assert len(wire.records(TRIMMED)) == FIRST_LIFE - first
        assert wire.records(TOPIC) == stored.records
    if spoil not in (damage.missing, damage.flipped):
        assert f"checkpoint is unreadable and counts as absent: path={stored.path}" in caplog.text


@spoilt
def test_without_high_watermarks_all_is_shown_that_was(
    stored: Stored, spoil: damage.Damage
) -> None:
    spoil(stored.path / REPLICATION_OFFSETS)
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
        assert wire.offset(TOPIC, LATEST) == 2 * FIRST_LIFE
    # And a clean stop writes them down again.
    assert f"{TOPIC} 0 {2 * FIRST_LIFE}" in _text(stored.path / REPLICATION_OFFSETS)


@spoilt
def test_leader_epochs_are_found_again_in_the_batches(stored: Stored, spoil: damage.Damage) -> None:
    spoil(stored.log / LEADER_EPOCHS)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.epoch_end(TOPIC, 0) == (0, FIRST_LIFE)
        assert wire.epoch_end(TOPIC, 1) == (1, 2 * FIRST_LIFE)
        assert wire.epoch_end(TOPIC, 2)[1] == 2 * FIRST_LIFE


@pytest.mark.parametrize("which", ["newest", "all"])
@spoilt
def test_producers_are_found_again_in_the_batches(
    stored: Stored, spoil: damage.Damage, which: str
) -> None:
    for path in stored.segments(".snapshot")[-1 if which == "newest" else 0 :]:
        spoil(path)
    with stored.broker() as broker, Wire(broker.port) as wire:
        # Whatever an idempotent producer may have in flight, it may send again.
        for number in range(2 * BATCHES_PER_LIFE - 5, 2 * BATCHES_PER_LIFE):
            again = wire.produce(TOPIC, batch(stored.producer_id, number).encode())
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, number * 3)
        gap = stored.last_batch().but(base_sequence=2 * FIRST_LIFE + 3)
        refused = wire.produce(TOPIC, gap.encode())
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = stored.last_batch().but(base_sequence=2 * FIRST_LIFE)
        assert wire.produce(TOPIC, following.encode()).base_offset == 2 * FIRST_LIFE


@spoilt
def test_without_the_cleaners_offsets_compaction_begins_anew(
    stored: Stored, spoil: damage.Damage
) -> None:
    checkpoint = stored.path / CLEANER_OFFSETS
    spoil(checkpoint)
    with stored.broker(log_flush_offset_checkpoint_interval_ms="50") as broker:
        wait_until(lambda: f"{COMPACTED} 0 " in _text(checkpoint), "no compaction")
        with Wire(broker.port) as wire:
            assert newest_values(wire) == NEWEST
            assert wire.offset(COMPACTED, LATEST) == BATCHES_PER_LIFE


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


@pytest.mark.parametrize(
    "spoil", [damage.missing, damage.empty, damage.zeros, damage.garbage, damage.text]
)
def test_a_partition_whose_topic_id_cannot_be_read_is_taken_by_its_name(
    stored: Stored, spoil: damage.Damage
) -> None:
    spoil(stored.log / PARTITION_METADATA)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records


def test_data_of_another_topic_id_is_set_aside_and_kept(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    """An id that was altered must not cost the data: nothing here says which of both is right."""
    metadata = stored.log / PARTITION_METADATA
    head, found, topic_id = metadata.read_text().partition("topic_id: ")
    metadata.write_text(f"{head}{found}AAAA{topic_id[4:]}")
    before = {path.name: path.read_bytes() for path in stored.segments()}
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == []
    (aside,) = stored.path.glob(f"{TOPIC}-0.*-stray")
    assert {path.name: path.read_bytes() for path in aside.glob("*.log")} == before
    assert f"partition={TOPIC}-0" in caplog.text


@spoilt
def test_whatever_the_clean_mark_holds_only_its_being_there_counts(
    closed: Stored, spoil: damage.Damage
) -> None:
    spoil(closed.path / CLEAN_SHUTDOWN)
    with closed.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == closed.records
