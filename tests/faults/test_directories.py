"""Data directories that a broker must not take, and how it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.errors import StartupRefused
from headrace.core.ids import NodeId
from headrace.log.directory import LogDirectory
from headrace.log.names import META_PROPERTIES
from headrace.log.real_files import RealFileSystem
from headrace.node.system import RealClock, RealRandomness
from tests.faults import damage
from tests.faults.mounts import small_disk
from tests.faults.stored import TOPIC, Stored, batch
from tests.faults.wire import Wire
from tests.support.brokers import HeadraceProcess
from tests.support.groups import required

WAIT_SECONDS = 30


def refused(path: Path, *options: str) -> str:
    """What `serve` says when it must not start; it ends by itself, with exit code 1."""
    command = [sys.executable, "-m", "headrace", "serve", "--data-dir", str(path)]
    command += ["--listen", "127.0.0.1:0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^  hint: \S", done.stderr, re.MULTILINE), done.stderr
    return done.stderr


def test_a_second_broker_on_the_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    first = HeadraceProcess(tmp_path / "data")
    first.start()
    try:
        said = refused(first.data_dir)
        assert f"{first.data_dir} is in use by another process" in said
        assert "stop the other broker" in said
        with Wire(first.port) as wire:
            assert wire.producer_id() >= 0
    finally:
        first.kill()
    # A dead broker holds no lock.
    first.start()
    assert first.stop() == 0


def test_a_directory_of_another_node_is_refused(closed: Stored) -> None:
    said = refused(closed.path, "--set", "node.id=7")
    assert "belongs to node 0, this is node 7" in said


def test_a_directory_of_another_cluster_is_refused(closed: Stored) -> None:
    with pytest.raises(StartupRefused, match=r"belongs to cluster .*, not to elsewhere") as found:
        LogDirectory.open(
            RealFileSystem(),
            str(closed.path),
            RealClock(),
            RealRandomness(),
            node_id=NodeId(0),
            cluster_id="elsewhere",
        )
    assert found.value.hint


@pytest.mark.parametrize(
    "spoil", [each for each in damage.ALL if each is not damage.flipped], ids=lambda e: e.__name__
)
def test_data_without_a_good_owner_file_is_refused_and_left_alone(
    stored: Stored, spoil: damage.Damage
) -> None:
    spoil(stored.path / META_PROPERTIES)
    before = contents(stored.path)
    with pytest.raises(StartupRefused, match=META_PROPERTIES) as found:
        stored.broker().start()
    assert "backup" in found.value.hint
    assert contents(stored.path) == before


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and each.name != ".lock"
    }


def test_a_refusal_does_not_cost_the_clean_stop(closed: Stored) -> None:
    """Started once by mistake as another node, the directory is still known to be clean."""
    refused(closed.path, "--set", "node.id=7")
    assert (closed.path / ".kafka_cleanshutdown").exists()


def test_a_read_only_directory_is_refused(tmp_path: Path, closed: Stored) -> None:
    context = small_disk(tmp_path / "disk", 16 << 20)
    disk = required(context.__enter__)
    try:
        copied = closed.copy(disk.path / "data")
        disk.make_read_only()
        said = refused(copied.path)
        assert str(copied.path) in said
        assert "Read-only file system" in said
        disk.make_writable()
        with copied.broker() as broker, Wire(broker.port) as wire:
            assert wire.records(TOPIC) == copied.records
    finally:
        context.__exit__(None, None, None)


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    assert str(file) in refused(file)
    assert str(file / "below") in refused(file / "below")


def test_what_is_not_ours_in_the_directory_is_left_alone(stored: Stored) -> None:
    strangers = ["lost+found", "notes", ".hidden", "events-0.old", "no-number-x"]
    for name in strangers:
        (stored.path / name).mkdir()
        (stored.path / name / "kept").write_text("kept")
    (stored.path / "README").write_text("kept")
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
    for name in strangers:
        assert (stored.path / name / "kept").read_text() == "kept"
    assert (stored.path / "README").read_text() == "kept"


def test_partitions_of_unknown_topics_are_set_aside_not_deleted(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    (stored.path / "unknown-3").mkdir()
    (stored.path / "unknown-3" / "00000000000000000000.log").write_bytes(b"precious")
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
    (aside,) = stored.path.glob("unknown-3.*-stray")
    assert (aside / "00000000000000000000.log").read_bytes() == b"precious"
    assert "setting aside data of an unknown topic: partition=unknown-3" in caplog.text


def test_an_empty_partition_directory_is_an_empty_partition(stored: Stored) -> None:
    for path in stored.log.iterdir():
        path.unlink()
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == []
        answer = wire.produce(TOPIC, batch(-1, 1).but(base_sequence=-1).encode())
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_file_in_place_of_a_partition_is_set_aside(stored: Stored) -> None:
    (stored.path / "unknown-0").write_text("a file")
    with stored.broker() as broker, Wire(broker.port) as wire:
        assert wire.records(TOPIC) == stored.records
    (aside,) = stored.path.glob("unknown-0.*-stray")
    assert aside.read_text() == "a file"
