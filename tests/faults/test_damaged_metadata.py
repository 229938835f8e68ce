"""The metadata log and its snapshots spoilt: no topic is forgotten in silence, no data deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError, StartupRefused
from headrace.metadata import snapshot_generator
from headrace.protocol.records.header import iterate_headers
from headrace.testing import Broker
from tests.faults import damage
from tests.faults.stored import TOPIC, Stored
from tests.faults.test_directories import contents
from tests.faults.wire import LATEST, Wire

spoilt = pytest.mark.parametrize("spoil", damage.ALL, ids=lambda each: each.__name__)


@spoilt
def test_a_spoilt_quorum_state_is_found_again_in_the_log(
    stored: Stored, spoil: damage.Damage
) -> None:
    spoil(stored.metadata / "quorum-state")
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
        # The leader epoch has grown as at any other start.
        assert wire.epoch_end(TOPIC, 1)[1] == len(stored.records)


@pytest.mark.parametrize("text", ["[]", '{"leaderEpoch":-9}', '{"leaderEpoch":99999999999}', "7"])
def test_a_quorum_state_that_makes_no_sense_is_not_believed(stored: Stored, text: str) -> None:
    (stored.metadata / "quorum-state").write_text(text)
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records


def test_a_flipped_bit_in_the_metadata_log_refuses_the_start(closed: Stored) -> None:
    (path,) = closed.metadata.glob("*.log")
    position, header = list(iterate_headers(path.read_bytes()))[2]
    damage.flip(path, position + 80)
    before = contents(closed.path)
    with pytest.raises(StartupRefused, match="metadata log is damaged at offset") as found:
        closed.broker().start()
    assert f"offset {header.base_offset}" in str(found.value)
    assert "backup" in found.value.hint
    assert data_of(before) == data_of(contents(closed.path))


def test_a_torn_tail_of_the_metadata_log_is_cut(
    killed: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = killed.metadata.glob("*.log")
    with path.open("ab") as file:
        file.write(b"\x00\x00\x00torn")
    with killed.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == killed.records
    assert "cut a torn tail" in caplog.text


def test_a_lost_metadata_log_sets_all_data_aside(
    closed: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = closed.metadata.glob("*.log")
    before = {each.name: each.read_bytes() for each in closed.segments()}
    path.unlink()
    with closed.broker() as broker, Wire(broker.port) as wire:
        assert wire.find(TOPIC, LATEST).error_code
    (aside,) = closed.path.glob(f"{TOPIC}-0.*-stray")
    assert {each.name: each.read_bytes() for each in aside.glob("*.log")} == before
    assert f"setting aside data of an unknown topic: partition={TOPIC}-0" in caplog.text


def data_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """The data files among `contents`."""
    return {name: data for name, data in files.items() if name.endswith(".log")}


def snapshots_beside(path: Path) -> list[Path]:
    """Oldest first."""
    return sorted(path.parent.glob("*.checkpoint"))


@pytest.fixture
def snapshotted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, Path]]:
    """A stopped broker with three topics or more, whose metadata log begins behind a snapshot."""
    broker = Broker(data_dir=tmp_path / "data")
    with monkeypatch.context() as always, broker:
        always.setattr(snapshot_generator, "SNAPSHOT_BYTES_MAX", 0)
        metadata = tmp_path / "data" / "__cluster_metadata-0"
        number = 0
        # Segments go as a whole, some snapshots after the records in them.
        while number < 3 or (metadata / "00000000000000000000.log").exists():
            broker.create_topic(f"topic{number}")
            number += 1
    _, newest = snapshots_beside(metadata / "quorum-state")
    yield broker, newest
    broker.stop()


def test_the_snapshot_is_what_the_topics_come_from(snapshotted: tuple[Broker, Path]) -> None:
    broker, _ = snapshotted
    broker.start()
    with Wire(broker.port) as wire:
        assert all(wire.offset(f"topic{number}", LATEST) == 0 for number in range(3))


@spoilt
def test_without_a_good_snapshot_behind_a_cut_log_the_start_is_refused(
    snapshotted: tuple[Broker, Path], spoil: damage.Damage
) -> None:
    broker, newest = snapshotted
    for snapshot in snapshots_beside(newest):
        spoil(snapshot)
    with pytest.raises(HeadraceError, match="no snapshot reaches further") as found:
        broker.start()
    assert ".checkpoint" in found.value.hint


@spoilt
def test_without_the_newest_snapshot_the_one_before_and_the_log_do(
    snapshotted: tuple[Broker, Path], spoil: damage.Damage
) -> None:
    broker, newest = snapshotted
    spoil(newest)
    broker.start()
    with Wire(broker.port) as wire:
        assert all(wire.offset(f"topic{number}", LATEST) == 0 for number in range(3))


def test_a_half_written_snapshot_does_no_harm(snapshotted: tuple[Broker, Path]) -> None:
    broker, snapshot = snapshotted
    half = snapshot.with_name(snapshot.name + ".tmp")
    half.write_bytes(snapshot.read_bytes()[:100])
    broker.start()
    with Wire(broker.port) as wire:
        assert wire.offset("topic0", LATEST) == 0


def test_a_newer_snapshot_that_is_bad_is_passed_over(
    snapshotted: tuple[Broker, Path], caplog: pytest.LogCaptureFixture
) -> None:
    broker, snapshot = snapshotted
    newer = snapshot.with_name(f"{int(snapshot.name[:20]) + 5:020d}-0000000009.checkpoint")
    newer.write_bytes(snapshot.read_bytes()[:-30])
    broker.start()
    with Wire(broker.port) as wire:
        assert wire.offset("topic0", LATEST) == 0
    assert f"snapshot passed over: path={newer}" in caplog.text
