"""A log that cannot be opened keeps everything that is known about it, and costs no other."""

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

import headrace
from headrace.core.errors import StartupRefused, StorageError
from headrace.core.ids import Offset, TopicPartition
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS, CleanerCheckpoint
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.names import LOG_STARTS, RECOVERY_POINTS
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    fill,
    open_directory,
    read_all,
    simulated_disk,
)

OTHER = TopicPartition("orders", 1)
OTHER_ID = UUID(int=8, version=4)
CONFIG = LogConfig(segment_bytes=1000)
UNREADABLE = Fault("open", errno.EACCES, "orders-0/0")
CLEAN_MARKER = "/data/.kafka_cleanshutdown"


def opened(directory: LogDirectory, *partitions: TopicPartition) -> None:
    for partition in partitions:
        directory.create(partition, TOPIC_ID, CONFIG)


def written() -> SimulatedFileSystem:
    """Two partitions of several segments, both in every table; then a kill."""
    disk = simulated_disk()
    directory = open_directory(disk)
    cleaner = CleanerCheckpoint(disk, "/data")
    for partition in (ORDERS, OTHER):
        log = directory.create(partition, TOPIC_ID, CONFIG)
        fill(log, 30)
        log.advance_log_start(Offset(4))
        cleaner.update(partition, 7)
    directory.checkpoint()
    return disk.after_kill()


def entries(disk: SimulatedFileSystem, table: str) -> set[str]:
    return {line for line in disk.read_file(f"/data/{table}").decode().splitlines() if " " in line}


def one_offline(disk: SimulatedFileSystem, attempts: int = 2) -> LogDirectory:
    """ORDERS cannot be opened, however often it is tried; OTHER can."""
    disk.faults.rules = [UNREADABLE]
    directory = open_directory(disk)
    for _ in range(attempts):
        with pytest.raises(StorageError):
            directory.create(ORDERS, TOPIC_ID, CONFIG)
    opened(directory, OTHER)
    return directory


def checkpoint(directory: LogDirectory) -> None:
    fill(directory.logs[OTHER], 3)
    directory.logs[OTHER].advance_log_start(Offset(9))
    directory.checkpoint()


def truncate(directory: LogDirectory) -> None:
    directory.logs[OTHER].truncate_to(Offset(20))


def create_again(directory: LogDirectory) -> None:
    directory.delete(OTHER)
    directory.rename_deleted()
    directory.create(OTHER, OTHER_ID, CONFIG)


def delete_records(directory: LogDirectory) -> None:
    directory.logs[OTHER].advance_log_start(Offset(9))
    directory.checkpoint_log_starts(durable=True)


def retain_cleaned(directory: LogDirectory) -> None:
    directory.delete(OTHER)
    directory.rename_deleted()
    cleaner = CleanerCheckpoint(directory._files, "/data")
    cleaner.retain((*directory.logs, *directory.partitions_on_disk))


REWRITES = [
    checkpoint,
    truncate,
    create_again,
    delete_records,
    retain_cleaned,
    LogDirectory.close,
]


TABLES = [RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS]
# Who else writes files anew, and whose they are.
OF_ONE_OWNER = {
    "metadata/quorum_state.py": "the node's vote",
    "metadata/snapshots.py": "one image, right as a whole",
    "log/leader_epochs.py": "one log's",
    "log/meta_properties.py": "the directory's",
}
# An entry that is lost here costs no records: it is found anew, or learned from other replicas.
HINTS = {"replication/high_watermark_checkpoint.py"}
OF_SEVERAL = {"log/directory.py", "log/compaction/checkpoint.py"}


def test_every_file_that_speaks_of_several_partitions_is_among_the_tables() -> None:
    disk = written()
    speaking = set()
    for name in disk.list_directory("/data"):
        with suppress(FileNotFoundError, IsADirectoryError):
            if b"orders 0 " in disk.read_file(f"/data/{name}"):
                speaking.add(name)
    assert speaking == set(TABLES)


def test_whoever_writes_a_file_anew_is_known() -> None:
    source = Path(headrace.__file__).parent
    callers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"(?<!def )replace_file\(", path.read_text())
    }
    assert callers == set(OF_ONE_OWNER) | HINTS | OF_SEVERAL


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.__name__)
@pytest.mark.parametrize("table", TABLES)
def test_a_table_written_anew_keeps_the_entry_of_a_log_that_is_offline(
    table: str, rewrite: Callable[[LogDirectory], None]
) -> None:
    disk = written()
    before = {entry for entry in entries(disk, table) if entry.startswith("orders 0 ")}
    assert len(before) == 1
    directory = one_offline(disk)
    rewrite(directory)
    assert before <= entries(disk, table)


def test_a_compacted_log_is_whole_after_a_start_that_could_not_open_it() -> None:
    """Compaction leaves holes between segments, which recovery takes for lost data past the
    recovery point."""
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 30)
    opened(directory, OTHER)
    directory.checkpoint()
    second = log.segments.all[1].base_offset
    for name in disk.list_directory("/data/orders-0"):
        if name.startswith(f"{second:020d}"):
            disk.remove(f"/data/orders-0/{name}")
    disk = disk.after_kill()
    left = sum(name.endswith(".log") for name in disk.list_directory("/data/orders-0"))
    failing = one_offline(disk)
    fill(failing.logs[OTHER], 3)
    failing.checkpoint()
    disk = disk.after_kill()
    disk.faults.rules = []
    again = open_directory(disk).create(ORDERS, TOPIC_ID, CONFIG)
    assert (len(again.segments), again.log_end_offset) == (left, 30)


def test_segments_behind_a_cut_are_set_aside_and_not_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 30)
    segments = directory.logs[ORDERS].segments.all
    content = {s.path(): disk.read_file(s.path()) for s in segments[2:]}
    for round_number in range(2):  # the second time the names are taken
        disk = disk.after_kill()
        disk.open(segments[1].path()).truncate(50)
        log = open_directory(disk).create(ORDERS, TOPIC_ID, CONFIG)
        assert log.log_end_offset == segments[1].base_offset
        assert read_all(log)[-1].last_offset == log.log_end_offset - 1
        suffix = ".stray" if round_number == 0 else ".stray-2"
        for path, data in content.items():
            assert disk.read_file(path + suffix) == data
            assert not disk.exists(path)
        assert f"renamed_to={segments[2].path()}{suffix}" in caplog.text
        fill(log, 30 - log.log_end_offset)
        content = {s.path(): disk.read_file(s.path()) for s in log.segments.all[2:]}


def test_deleted_records_stay_deleted_where_their_table_could_not_be_read_once() -> None:
    disk = written()
    directory = open_directory(disk)
    opened(directory, ORDERS, OTHER)
    directory.close()
    disk.faults.rules = [Fault("open", errno.EACCES, LOG_STARTS)]
    with pytest.raises(StartupRefused, match=LOG_STARTS):
        open_directory(disk)
    disk.faults.rules = []
    directory = open_directory(disk)
    assert directory.clean, "the refusal did not cost the clean stop"
    opened(directory, ORDERS, OTHER)
    assert [log.log_start_offset for log in directory.logs.values()] == [4, 4]


def test_a_stop_is_not_called_clean_for_a_log_that_nobody_opened() -> None:
    disk = written()
    one_offline(disk).close()
    assert not disk.exists(CLEAN_MARKER)
    disk = disk.after_kill()
    disk.faults.rules = []
    again = open_directory(disk)
    opened(again, ORDERS, OTHER)
    assert again.logs[OTHER].recovery_point == again.logs[OTHER].log_end_offset == 30
    again.close()
    assert disk.exists(CLEAN_MARKER)


def test_a_torn_tail_is_cut_by_the_first_start_that_can_open_the_log() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, LogConfig()), 6)
    opened(directory, OTHER)
    disk = disk.after_kill()
    path = "/data/orders-0/00000000000000000000.log"
    data = disk.read_file(path)
    disk.write_file(path, data[:-50] + bytes(20) + data[-30:])
    one_offline(disk).close()
    disk = disk.after_kill()
    disk.faults.rules = []
    assert open_directory(disk).create(ORDERS, TOPIC_ID, LogConfig()).log_end_offset == 5


@pytest.mark.parametrize("file", ["orders-0/0", "orders-0/partition.metadata", "orders-0/"])
@pytest.mark.parametrize("kind", ["open", "read"])
def test_what_cannot_be_read_is_never_renamed(kind: str, file: str) -> None:
    disk = written()
    disk.faults.rules = [Fault(kind, errno.EIO, file)]
    directory = open_directory(disk)
    try:
        directory.create(ORDERS, TOPIC_ID, CONFIG)
    except (StorageError, OSError):
        assert ORDERS in directory.partitions_on_disk
    opened(directory, OTHER)
    directory.close()
    names = disk.list_directory("/data")
    assert "orders-0" in names
    assert not [name for name in names if name.endswith(("-stray", "-delete"))]


def test_a_failed_attempt_leaves_no_file_open() -> None:
    disk = written()
    disk.faults.rules = [Fault("read", errno.EIO, "orders-0/0")]
    directory = open_directory(disk)
    with pytest.raises(StorageError):
        directory.create(ORDERS, TOPIC_ID, CONFIG)
    assert [file for file in disk._open if "orders-0" in file.path] == []


def test_a_deleted_partition_that_was_offline_is_removed() -> None:
    disk = written()
    directory = one_offline(disk)
    directory.delete(ORDERS)
    assert not directory.rename_deleted()
    directory.remove_deleted(START_MS)
    assert not [name for name in disk.list_directory("/data") if name.startswith("orders-0")]
    assert directory.create(ORDERS, OTHER_ID, CONFIG).log_end_offset == 0


@pytest.mark.parametrize("renamed", [True, False])
def test_a_directory_that_could_not_be_renamed_is_not_taken_for_its_successors(
    renamed: bool,
) -> None:
    disk = written()
    directory = open_directory(disk)
    opened(directory, ORDERS, OTHER)
    disk.faults.rules = [Fault("rename", errno.EIO, "orders-0", times=1)]
    directory.delete(ORDERS)
    if renamed:
        directory.rename_deleted()
    log = directory.create(ORDERS, OTHER_ID, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    fill(log, 2)
    directory.rename_deleted()
    assert disk.exists("/data/orders-0/00000000000000000000.log")
