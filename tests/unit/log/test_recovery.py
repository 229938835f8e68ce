"""Opening a log after a crash, or with files that somebody damaged."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core.ids import LeaderEpoch, Offset
from headrace.log import segment_indexes
from headrace.log.batch_scan import scan_headers
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.protocol.records.header import BatchHeader, parse_header
from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.support.log_checks import log_problems
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    append,
    batch,
    fill,
    open_directory,
    open_log,
    read_all,
    simulated_disk,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
PATH = "/data/orders-0"
FIRST = f"{PATH}/00000000000000000000"


def damage(disk: SimulatedFileSystem, path: str, position: int, flip: int = 0x10) -> None:
    data = bytearray(disk.read_file(path))
    data[position] ^= flip
    disk.write_file(path, data)


def cut(disk: SimulatedFileSystem, path: str, by: int) -> None:
    file = disk.open(path)
    file.truncate(file.size() - by)
    file.close()


def written(batches: int = 25, config: LogConfig = SMALL) -> SimulatedFileSystem:
    """The disk of a log that was killed."""
    disk = simulated_disk()
    log = open_log(disk, config)
    fill(log, batches)
    return disk.after_kill()


def closed(batches: int = 25, config: LogConfig = SMALL) -> SimulatedFileSystem:
    """The disk of a log that was closed properly."""
    disk = simulated_disk()
    log = open_log(disk, config)
    fill(log, batches)
    log.close()
    return disk.after_kill()


def reopened(disk: SimulatedFileSystem) -> tuple[LogDirectory, PartitionLog]:
    directory = open_directory(disk)
    return directory, directory.create(ORDERS, TOPIC_ID, SMALL)


def offsets(log: PartitionLog) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def test_a_killed_log_has_all_that_was_written() -> None:
    log = open_log(written(), SMALL)
    assert offsets(log) == list(range(25))
    assert (log.log_end_offset, log.flushed_offset) == (25, 0)
    assert log.flush() == 25
    log.checkpoint()
    assert log_problems(log) == []


def test_a_torn_tail_is_cut_at_the_first_bad_batch(caplog: pytest.LogCaptureFixture) -> None:
    disk = written(5, LogConfig())
    size = disk.size(FIRST + ".log")
    cut(disk, FIRST + ".log", 30)
    log = open_log(disk)
    assert offsets(log) == [0, 1, 2, 3]
    assert f"bytes={size // 5 - 30}" in caplog.text
    assert append(log, batch()).first_offset == 4


@pytest.mark.parametrize("position", [8, 16, 17, 21, 23, 40, 61, 95])
def test_a_flipped_bit_ends_the_log_before_its_batch(position: int) -> None:
    disk = written(10, LogConfig())
    size = disk.size(FIRST + ".log") // 10
    damage(disk, FIRST + ".log", 6 * size + position)
    assert offsets(open_log(disk)) == list(range(6))


def test_an_offset_that_goes_back_ends_the_log() -> None:
    disk = written(10, LogConfig())
    size = disk.size(FIRST + ".log") // 10
    damage(disk, FIRST + ".log", 6 * size + 7, flip=0x04)  # 6 becomes 2
    assert offsets(open_log(disk)) == list(range(6))


def test_an_epoch_that_goes_back_ends_the_log() -> None:
    disk = simulated_disk()
    log = open_log(disk)
    for epoch in (3, 3, 3, 3):
        append(log, batch(), epoch=epoch)
    size = disk.size(FIRST + ".log") // 4
    damage(disk, FIRST + ".log", 2 * size + 15, flip=0x01)  # 3 becomes 2
    assert offsets(open_log(disk.after_kill())) == [0, 1]


def test_segments_behind_a_cut_are_removed() -> None:
    disk = written(25)
    second = sorted(n for n in disk.list_directory(PATH) if n.endswith(".log"))[1]
    damage(disk, f"{PATH}/{second}", 70)
    log = open_log(disk, SMALL)
    assert len(log.segments) == 2
    assert log.log_end_offset == int(second[:20])
    assert not [n for n in disk.list_directory(PATH) if n.endswith(".deleted")]


def test_a_hole_between_segments_ends_the_log_past_a_known_recovery_point() -> None:
    disk = written(25)
    logs = sorted(n for n in disk.list_directory(PATH) if n.endswith(".log"))
    cut(disk, f"{PATH}/{logs[1]}", disk.size(f"{PATH}/{logs[1]}"))
    copy = disk.copy()
    assert open_log(disk, SMALL).log_end_offset == int(logs[1][:20])
    assert open_log(copy, SMALL, recovery_point=None).log_end_offset == 25


def test_what_lies_before_the_recovery_point_is_not_checked() -> None:
    disk = written(10, LogConfig())
    damage(disk, FIRST + ".log", 75)
    assert open_log(disk, recovery_point=5).log_end_offset == 10


def test_a_clean_log_is_opened_without_reading_its_data() -> None:
    disk = closed(200, LogConfig(index_interval_bytes=500))
    read: list[tuple[str, int]] = []
    inner = disk.open

    def watched(path: str, *, create: bool = False):  # type: ignore[no-untyped-def]  # a wrapper
        file = inner(path, create=create)
        real = file.read
        file.read = lambda at, size: read.append((path, size)) or real(at, size)  # type: ignore[func-returns-value, method-assign, assignment]  # counts
        return file

    disk.open = watched  # type: ignore[method-assign]  # counts
    log = open_log(disk, clean=True, recovery_point=200)
    assert log.log_end_offset == 200
    assert log.flushed_offset == 200
    assert sum(size for _, size in read) < 2000


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "empty", "torn", "cut", "zeros", "flipped"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_made_anew(suffix: str, harm: str, clean: bool) -> None:
    disk = closed(60)
    for name in [n for n in disk.list_directory(PATH) if n.endswith(suffix)]:
        path = f"{PATH}/{name}"
        if harm == "missing":
            disk.remove(path)
        elif harm == "empty":
            disk.write_file(path, b"")
        elif harm == "torn":
            cut(disk, path, 3)
        elif harm == "cut":
            cut(disk, path, disk.size(path) // 24 * 12)
        elif harm == "zeros":
            disk.write_file(path, bytes(disk.size(path)))
        else:
            damage(disk, path, 6)
    log = open_log(disk, SMALL, clean=clean, recovery_point=60)
    assert log.log_end_offset == 60
    for offset in range(60):
        data = log.read(Offset(offset), 1, log.log_end_offset, at_least_one=True)
        assert int.from_bytes(data[:8], "big") == offset
        stamp = START_MS + offset * 10
        assert log.find_by_timestamp(stamp - 9, log.log_end_offset) == (offset, stamp, 1)


def test_an_index_of_another_segment_is_noticed() -> None:
    disk = closed(60)
    names = sorted(n for n in disk.list_directory(PATH) if n.endswith(".index"))
    disk.write_file(f"{PATH}/{names[1]}", b"\x00\x00\x00\x02\x00\x00\x00\x41")
    log = open_log(disk, SMALL, clean=True, recovery_point=60)
    start = log.segments.all[1].base_offset
    assert log.read(Offset(start + 4), 1, log.log_end_offset, at_least_one=True)
    assert log_problems(log) == []


def test_an_index_without_data_is_removed() -> None:
    disk = closed(5)
    disk.write_file(f"{PATH}/00000000000000000099.index", bytes(8))
    open_log(disk, SMALL)
    assert not disk.exists(f"{PATH}/00000000000000000099.index")


def test_a_data_file_cut_after_a_clean_stop_is_recovered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = closed(25)
    last = max(n for n in disk.list_directory(PATH) if n.endswith(".log"))
    cut(disk, f"{PATH}/{last}", 10)
    log = open_log(disk, SMALL, clean=True, recovery_point=25)
    assert log.log_end_offset == 24
    assert "does not end well" in caplog.text


def test_producers_are_known_after_a_kill_without_any_snapshot() -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    for sequence in range(30):
        append(log, batch(producer_id=5, sequence=sequence))
    disk = disk.after_kill()
    for name in [n for n in disk.list_directory(PATH) if n.endswith(".snapshot")]:
        disk.remove(f"{PATH}/{name}")
    log = open_log(disk, SMALL)
    for sequence in range(25, 30):
        assert append(log, batch(producer_id=5, sequence=sequence)).first_offset == sequence
    assert append(log, batch(producer_id=5, sequence=30)).first_offset == 30


@pytest.mark.parametrize("clean", [True, False])
def test_a_bad_snapshot_is_replaced_by_an_older_one_and_the_data(clean: bool) -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    for sequence in range(30):
        append(log, batch(producer_id=5, sequence=sequence))
    log.close()
    disk = disk.after_kill()
    newest = max(n for n in disk.list_directory(PATH) if n.endswith(".snapshot"))
    damage(disk, f"{PATH}/{newest}", -1)
    log = open_log(disk, SMALL, clean=clean, recovery_point=30)
    assert append(log, batch(producer_id=5, sequence=29)).duplicate
    assert append(log, batch(producer_id=5, sequence=25)).duplicate
    assert not append(log, batch(producer_id=5, sequence=30)).duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"garbage", b"0\n1\n1 0\n"])
def test_lost_or_stale_epochs_are_rebuilt_from_the_data(clean: bool, content: bytes | None) -> None:
    disk = simulated_disk()
    log = open_log(disk, SMALL)
    for number in range(30):
        append(log, batch(), epoch=1 + number // 10)
    log.close()
    disk = disk.after_kill()
    disk.remove(f"{PATH}/leader-epoch-checkpoint")
    if content is not None:
        disk.write_file(f"{PATH}/leader-epoch-checkpoint", content)
    log = open_log(disk, SMALL, clean=clean, recovery_point=30)
    ends = [log.end_offset_for_epoch(LeaderEpoch(epoch)) for epoch in (1, 2, 3)]
    assert ends == [(1, 10), (2, 20), (3, 30)]


def test_leftovers_of_deleted_segments_are_removed() -> None:
    disk = closed(5)
    disk.write_file(f"{PATH}/00000000000000000000.log.deleted", b"x")
    disk.write_file(f"{PATH}/leader-epoch-checkpoint.tmp", b"x")
    open_log(disk, SMALL, clean=True)
    left = disk.list_directory(PATH)
    assert not [name for name in left if name.endswith((".deleted", ".tmp"))]


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"0\n7\n"])
def test_garbage_in_all_checkpoints_costs_time_but_no_records(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, SMALL), 25)
    directory.checkpoint()
    disk = disk.after_kill()
    for name in disk.list_directory("/data"):
        if name.endswith("checkpoint"):
            disk.write_file(f"/data/{name}", garbage)
    disk.write_file(f"{PATH}/partition.metadata", garbage)
    directory, log = reopened(disk)
    assert log.log_end_offset == 25
    assert "unreadable" in caplog.text
    directory.checkpoint()
    directory, log = reopened(disk.after_kill())
    assert (log.log_end_offset, log.recovery_point) == (25, 25)


def test_recovery_starts_at_the_checkpointed_recovery_point() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    fill(log, 25)
    directory.checkpoint()
    fill(log, 5)
    disk = disk.after_kill()
    damage(disk, FIRST + ".log", 75)
    _, log = reopened(disk)
    assert (log.recovery_point, log.flushed_offset, log.log_end_offset) == (25, 25, 30)


@pytest.mark.parametrize("left", [[], ["partition.metadata"]])
def test_a_directory_left_without_data_is_made_whole_by_the_first_flush(left: list[str]) -> None:
    disk = simulated_disk()
    open_directory(disk)
    disk.make_directory(PATH)
    for name in left:
        disk.write_file(f"{PATH}/{name}", b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABw\n")
    _, log = reopened(disk.after_kill())
    append(log, batch())
    assert log.flush() == 1
    disk = log.files.after_power_cut(LOSE_EVERYTHING)  # type: ignore[attr-defined]  # simulated
    _, log = reopened(disk)
    assert log.log_end_offset == 1
    assert disk.exists(f"{PATH}/partition.metadata")


def test_recovery_says_nothing_when_there_is_nothing_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = written(25)
    with caplog.at_level(logging.INFO):
        open_log(disk, SMALL)
    assert caplog.text == ""


def test_timestamps_are_found_after_recovery() -> None:
    disk = written(40)
    log = open_log(disk, SMALL, recovery_point=17)
    for number in (0, 17, 39):
        found = log.find_by_timestamp(START_MS + number * 10, log.log_end_offset)
        assert found == (number, START_MS + number * 10, 1)


def test_readers_see_every_batch_while_an_index_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that finds a damaged index mends it while the event loop reads."""
    disk = closed()
    for name in disk.list_directory(PATH):
        if name.endswith(".timeindex"):
            disk.write_file(f"{PATH}/{name}", b"")
    log = open_log(disk, SMALL, recovery_point=25, clean=True)
    first, last = log.segments.all[0].base_offset, log.segments.all[0].next_offset - 1
    seen: list[list[int]] = []

    def scan_and_let_others_read(*args: Any) -> Iterator[tuple[int, BatchHeader]]:
        for found in scan_headers(*args):
            yield found
            seen.append([_first_offset(log, offset) for offset in (first, last)])

    monkeypatch.setattr(segment_indexes, "scan_headers", scan_and_let_others_read)
    log.apply_retention(START_MS, Offset(25))
    assert len(seen) >= 10  # the batches of that segment
    assert all(offsets == [first, last] for offsets in seen)
    assert log_problems(log) == []


def _first_offset(log: PartitionLog, offset: int) -> int:
    return parse_header(log.read(Offset(offset), 100, Offset(25))).base_offset
