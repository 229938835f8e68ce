"""The same compaction in a process of its own."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.core.errors import StorageError
from headrace.log.compaction.request import CompactionResult
from headrace.log.compaction.runner import WORKER, InlineCompactor, ProcessCompactor
from headrace.log.compaction.worker import LOCK
from headrace.log.real_files import RealFileSystem
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.support.compacted_log import CompactedLog


def _log(path: Path) -> CompactedLog:
    log = CompactedLog(RealFileSystem(), str(path))
    for first in (0, 3):
        rows = [Record(first + i, 100, b"k%d" % i, b"%d" % first) for i in range(3)]
        log.add_segment([encode_batch(rows)])
    return log


def test_a_worker_process_gives_the_answer_of_the_inline_form(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0")
    inline = InlineCompactor(log.files).compact(log.request())
    apart = ProcessCompactor().compact(log.request())
    assert apart == inline
    for replacement in apart.replacements:
        log.replace(replacement)
    assert [record.offset for record in log.records()] == [3, 4, 5]


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0")
    request = log.request()
    (tmp_path / "t-0" / f"{3:020d}.log").unlink()
    with pytest.raises(StorageError, match="FileNotFoundError"):
        ProcessCompactor().compact(request)


def test_a_stopped_compactor_ends_its_worker_and_starts_no_other(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0")
    never_ends = "import os; os.read(os.pipe()[0], 1)"
    compactor = ProcessCompactor([sys.executable, "-c", never_ends])
    outcome: list[CompactionResult | StorageError] = []

    def work() -> None:
        try:
            outcome.append(compactor.compact(log.request()))
        except StorageError as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    compactor.stop()
    thread.join(30)
    assert isinstance(outcome[0], StorageError)
    with pytest.raises(StorageError, match="stopped"):
        compactor.compact(log.request())


def test_a_worker_that_dies_at_once_is_an_error(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0")
    with pytest.raises(StorageError, match="it died"):
        ProcessCompactor([sys.executable, "-c", "import os; os._exit(9)"]).compact(log.request())


def test_two_workers_never_share_a_data_directory(tmp_path: Path) -> None:
    """A broker that was killed and started again may find the old one's worker still there."""
    log = _log(tmp_path / "t-0")
    lock = RealFileSystem().lock(str(tmp_path / LOCK))
    with pytest.raises(StorageError, match="BlockingIOError"):
        ProcessCompactor().compact(log.request())
    lock.release()
    assert ProcessCompactor().compact(log.request()).replacements


def test_a_worker_ends_with_its_broker(tmp_path: Path) -> None:
    log = CompactedLog(RealFileSystem(), str(tmp_path / "t-0"))
    for first in range(0, 60_000, 6_000):
        rows = [Record(first + i, 100, b"k%d" % i, b"%d" % first) for i in range(6_000)]
        log.add_segment([encode_batch(rows)])
    request = log.request().to_json() + "\n"
    orphan = subprocess.run(WORKER, input=request, capture_output=True, text=True, check=False)
    assert (orphan.returncode, orphan.stdout) == (1, "")


def test_a_full_disk_ends_a_compaction_and_leaves_the_log_as_it_was() -> None:
    files = SimulatedFileSystem()
    log = CompactedLog(files)
    for first in range(0, 400, 40):
        rows = [Record(first + i, 100, b"key-%d" % (i + first // 2), b"v" * 50) for i in range(40)]
        log.add_segment([encode_batch(rows)])
    records, names = log.records(), files.list_directory(log.directory)
    for path_part in (".log.cleaned", ".keys.cleaned", ".index.cleaned"):
        files.faults.rules = [Fault("write", errno.ENOSPC, path_part)]
        with pytest.raises(StorageError, match="No space left"):
            InlineCompactor(files).compact(log.request(memory_bytes=5_000))
        assert files.list_directory(log.directory) == names
    files.faults.rules.clear()
    log.compact(log.request(memory_bytes=5_000))
    assert {r.key: r.value for r in records} == {r.key: r.value for r in log.records()}


def test_batches_that_make_no_sense_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    log = CompactedLog(SimulatedFileSystem())
    damaged = encode_batch([Record(0, 100, b"k", b"1")])
    damaged[-2] ^= 1
    log.add_segment([damaged])
    InlineCompactor(log.files).compact(log.request())
    assert "batches=1" in caplog.text
