"""Indexes spoilt while the broker was down: every offset and every time is found all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.log.verify import check_segment
from headrace.core.errors import ErrorCode
from headrace.protocol.records.header import iterate_headers
from tests.faults import damage
from tests.faults.stored import TOPIC, Stored, batch
from tests.faults.wire import Wire


def everything_is_found(wire: Wire, stored: Stored) -> None:
    """By each offset, by each time, and one after the other.

    First by offset, since a search by time may notice a wrong index and make it anew.
    """
    for record in reversed(stored.records):
        answer = wire.fetch(TOPIC, record.offset, max_bytes=1)
        assert answer.error_code == ErrorCode.NONE
        _, header = next(iterate_headers(bytes(answer.records or b"")))
        assert header.base_offset <= record.offset <= header.last_offset
    for record in stored.records:
        assert wire.offset(TOPIC, record.timestamp) == record.offset
    assert wire.offset(TOPIC, stored.records[-1].timestamp + 1) == -1
    assert wire.records(TOPIC) == stored.records


def indexes_fit(stored: Stored) -> None:
    """After the next clean stop the files are as they should be."""
    for path in stored.segments():
        assert check_segment(path).problems == []


@pytest.mark.parametrize("spoil", damage.ALL, ids=lambda each: each.__name__)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_spoilt_index_is_made_anew(
    stored: Stored, which: int, suffix: str, spoil: damage.Damage
) -> None:
    spoil(stored.segments(suffix)[which])
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
    # A wrong entry that no lookup meets may stay: it is a hint, and is compared before use.
    if spoil is not damage.flipped:
        indexes_fit(stored)


@pytest.mark.parametrize("which", [0, 3, -1])
def test_an_index_that_points_into_batches_is_made_anew(stored: Stored, which: int) -> None:
    damage.shifted(stored.segments(".index")[which])
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
    indexes_fit(stored)


def test_a_directory_in_place_of_an_index_fails_only_what_needs_it(closed: Stored) -> None:
    for suffix in (".index", ".timeindex"):
        damage.directory(closed.segments(suffix)[3])
    start, end = (int(path.stem) for path in closed.segments()[3:5])
    with closed.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC, end) == closed.records[end:]
        assert wire.fetch(TOPIC, start - 1).error_code == ErrorCode.NONE
        assert wire.fetch(TOPIC, end - 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        asked = closed.records[end - 1].timestamp
        assert wire.find(TOPIC, asked).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_no_index_at_all(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    for suffix in (".index", ".timeindex"):
        for path in stored.segments(suffix):
            path.unlink()
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
    assert "rebuilding indexes" in caplog.text
    indexes_fit(stored)


def test_indexes_of_two_segments_swapped(stored: Stored) -> None:
    first, second = stored.segments(".index")[1:3]
    swapped = Path(f"{first}.x")
    first.rename(swapped)
    second.rename(first)
    swapped.rename(second)
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)


def test_an_index_without_data_is_removed(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    stray = stored.log / "00000000000000004711.index"
    stray.write_bytes(bytes(800))
    with stored.broker() as broker, Wire(broker.port) as wire:
        everything_is_found(wire, stored)
        assert wire.produce(TOPIC, batch(-1, 99).but(base_sequence=-1).encode()).error_code == 0
    assert f"removing an index without data: path={stray}" in caplog.text
    assert not stray.exists()
