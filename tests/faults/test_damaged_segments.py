"""Data files spoilt while the broker was down: what is served, what is cut, and what is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from headrace.core.ids import TopicPartition
from tests.faults.damage import flip
from tests.faults.load import consumer
from tests.faults.stored import TOPIC, Stored, batch
from tests.faults.wire import EARLIEST, LATEST, Wire

# Inside a batch: length, magic, CRC, attributes, record count, payload.
FIELDS = {"length": 8, "magic": 16, "crc": 17, "attributes": 22, "count": 59, "payload": 80}


def verify(path: Path) -> tuple[int, str]:
    """What `headrace log verify` says about a directory."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "log", "verify", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def goes_on_at(wire: Wire, offset: int) -> None:
    """The next record gets this offset, and can be read."""
    answer = wire.produce(TOPIC, batch(-1, 999).but(base_sequence=-1).encode())
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
    assert [found.offset for found in wire.records(TOPIC, offset)] == [
        offset,
        offset + 1,
        offset + 2,
    ]


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_past_the_recovery_point_ends_the_log_there(
    killed: Stored, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = killed.batches()[60]
    assert place.base_offset > killed.recovery_point()
    flip(place.path, place.position + FIELDS[field])
    with killed.broker() as broker, Wire(broker.port) as wire:
        assert wire.offset(TOPIC, LATEST) == place.base_offset
        assert wire.records(TOPIC) == killed.records[: place.base_offset]
        goes_on_at(wire, place.base_offset)
    assert f"cut a torn tail: segment={place.path} position={place.position}" in caplog.text
    assert "setting aside a segment behind a cut" in caplog.text
    assert verify(killed.log)[0] == 0


@pytest.mark.parametrize("lost", [1, 30, 120, 150])
def test_a_torn_last_write_is_cut(
    killed: Stored, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    last = killed.batches()[-1]
    with last.path.open("r+b") as file:
        file.truncate(last.position + last.size - lost)
    expected = last.base_offset if lost <= last.size else last.base_offset - 3
    with killed.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == killed.records[:expected]
        goes_on_at(wire, expected)
    assert ("cut a torn tail" in caplog.text) == (lost != last.size)


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff" * 100, b"x", bytes(61)])
def test_rubbish_behind_the_last_batch_is_cut(
    stored: Stored, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored.segments()[-1]
    with path.open("ab") as file:
        file.write(tail)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
        goes_on_at(wire, len(stored.records))
    assert f"cut a torn tail: segment={path}" in caplog.text
    assert f"bytes={len(tail)}" in caplog.text


def test_a_cut_tail_after_a_clean_stop_is_found_all_the_same(
    closed: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    last = closed.batches()[-1]
    with last.path.open("r+b") as file:
        file.truncate(last.position + last.size - 10)
    with closed.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == closed.records[: last.base_offset]
        goes_on_at(wire, last.base_offset)
    assert "a cleanly closed log does not end well" in caplog.text


@pytest.mark.parametrize("field", ["crc", "payload"])
def test_a_flipped_bit_before_the_recovery_point_is_told_to_the_reader(
    stored: Stored, field: str
) -> None:
    """Kafka's rule too: what was synced is not read again at each start; the CRC travels."""
    place = stored.batches()[5]
    assert place.base_offset < stored.recovery_point()
    flip(place.path, place.position + FIELDS[field])
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.offset(TOPIC, LATEST) == len(stored.records)
        after = place.base_offset + 3
        assert wire.records(TOPIC, after) == stored.records[after:]
        reading = consumer(broker.bootstrap_servers, [TopicPartition(TOPIC, 0)])
        messages = [each for _ in range(4) for each in reading.consume(100, timeout=0.3)]
        reading.close()
        good = [each.offset() for each in messages if each.error() is None]
        assert set(range(place.base_offset, after)).isdisjoint(good)
        assert any("CRC" in str(each.error()) for each in messages if each.error() is not None)
    code, said = verify(stored.log)
    assert code == 1
    assert place.path.name in said.replace("\n", "")


@pytest.mark.parametrize("field", ["length", "magic"])
def test_a_batch_that_cannot_be_told_from_its_neighbour_fails_only_its_own_reads(
    stored: Stored, field: str
) -> None:
    place = stored.batches()[5]
    flip(place.path, place.position + FIELDS[field], 6)
    following = next(each for each in stored.segments() if each > place.path)
    next_base = int(following.stem)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.fetch(TOPIC, place.base_offset).error_code == ErrorCode.CORRUPT_MESSAGE
        assert wire.records(TOPIC, next_base) == stored.records[next_base:]
        assert wire.fetch(TOPIC, 0).error_code == ErrorCode.NONE
        goes_on_at(wire, len(stored.records))
    assert verify(stored.log)[0] == 1


@pytest.mark.parametrize("how", ["cut", "empty", "missing"])
def test_a_hole_in_the_middle_costs_only_what_was_in_it(stored: Stored, how: str) -> None:
    path = stored.segments()[1]
    start, end = int(path.stem), int(stored.segments()[2].stem)
    if how == "missing":
        path.unlink()
    else:
        kept = [each for each in stored.batches() if each.path == path][: 4 if how == "cut" else 0]
        with path.open("r+b") as file:
            file.truncate(sum(each.size for each in kept))
        start += 3 * len(kept)
    with stored.broker() as broker, Wire(broker.port) as wire:
        expected = [each for each in stored.records if not start <= each.offset < end]
        assert wire.records(TOPIC) == expected
        goes_on_at(wire, len(stored.records))


def test_a_missing_first_segment_moves_the_start(stored: Stored) -> None:
    stored.segments()[0].unlink()
    with stored.broker() as broker, Wire(broker.port) as wire:
        start = int(stored.segments()[0].stem)
        assert wire.offset(TOPIC, EARLIEST) == start
        assert wire.fetch(TOPIC, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.records(TOPIC) == stored.records[start:]


def test_all_data_files_missing_leaves_an_empty_partition(stored: Stored) -> None:
    for path in stored.segments():
        path.unlink()
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == []
        goes_on_at(wire, wire.offset(TOPIC, LATEST))
