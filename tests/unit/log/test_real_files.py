"""What only the real file system has: cached descriptors, threads, a kernel that fails."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.core.files import Buffer, NotTried
from headrace.log import descriptor_io
from headrace.log.page_cache import CACHED_READS_ONLY, NotInPageCache
from headrace.log.real_files import RealFileSystem, open_files_max_for


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return tmp_path.as_posix()


@pytest.fixture
def files() -> Iterator[RealFileSystem]:
    real = RealFileSystem(open_files_max=4)
    yield real
    real.close()


def fail_with(error: int) -> OSError:
    return OSError(error, os.strerror(error))


def test_the_number_of_descriptors_stays_bounded(files: RealFileSystem, directory: str) -> None:
    opened = [files.open(f"{directory}/{number}", create=True) for number in range(50)]
    for number, file in enumerate(opened):
        file.append([b"%d" % number])
    assert files.open_descriptors <= 4
    assert [file.read(0, 9) for file in opened] == [b"%d" % number for number in range(50)]


def test_a_clean_file_is_evicted_before_a_dirty_one(files: RealFileSystem, directory: str) -> None:
    opened = [files.open(f"{directory}/{number}", create=True) for number in range(4)]
    for file in opened:
        file.append([b"x"])
    opened[2].sync()
    files.open(f"{directory}/one more", create=True)
    assert [file._descriptor >= 0 for file in opened] == [True, True, False, True]


def test_a_descriptor_in_use_is_not_closed_under_its_user(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{directory}/slow", create=True)
    file.append([b"abc"])
    syncing, may_go_on = threading.Event(), threading.Event()
    outcome: list[int] = []

    def slow_sync(descriptor: int) -> None:
        syncing.set()
        assert may_go_on.wait(10)
        outcome.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(descriptor_io, "sync_data", slow_sync)
    inode = os.stat(f"{directory}/slow").st_ino
    worker = threading.Thread(target=file.sync)
    worker.start()
    assert syncing.wait(10)
    for number in range(20):
        files.open(f"{directory}/{number}", create=True)
    file.close()
    may_go_on.set()
    worker.join(10)
    assert outcome == [inode]
    assert files.open_descriptors <= 4
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)


def test_other_files_are_read_while_a_large_one_is_removed(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_file(f"{directory}/large", b"much")
    other = files.open(f"{directory}/other", create=True)
    other.append([b"abc"])
    reader = threading.Thread(target=other.read, args=(0, 3))
    read_meanwhile: list[bool] = []
    real_remove = os.remove

    def slow_remove(path: str) -> None:
        reader.start()
        reader.join(1)
        read_meanwhile.append(not reader.is_alive())
        real_remove(path)

    monkeypatch.setattr(os, "remove", slow_remove)
    files.remove(f"{directory}/large")
    assert read_meanwhile == [True]
    reader.join(10)


@pytest.mark.parametrize(("at_hand", "is_told"), [(6, False), (4, True), (0, True)])
def test_what_is_not_in_memory_is_told_instead_of_waited_for(
    files: RealFileSystem,
    directory: str,
    monkeypatch: pytest.MonkeyPatch,
    at_hand: int,
    is_told: bool,
) -> None:
    file = files.open(f"{directory}/partly", create=True)
    file.append([b"abcdef"])

    def read_at_once(descriptor: int, position: int, buffer: memoryview) -> int:
        data = os.pread(descriptor, min(len(buffer), max(at_hand - position, 0)), position)
        buffer[: len(data)] = data
        return len(data)

    monkeypatch.setattr(descriptor_io, "read_cached", read_at_once)
    with CACHED_READS_ONLY:
        if is_told:
            with pytest.raises(NotInPageCache):
                file.read(1, 100)
        else:
            assert file.read(1, 100) == b"bcdef"
    assert file.read(1, 100) == b"bcdef"
    assert not file.read_failed


class HeldUp:
    """A call that takes long in the thread that makes it, and only there."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._tester = threading.get_ident()
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != self._tester:
            self.begun.set()
            assert self.may_go_on.wait(10)
        return self._call(*arguments, **named)


def test_other_files_are_used_while_one_is_opened_slowly(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, elsewhere = f"{directory}/slow", f"{directory}/other"
    files.open(path, create=True).append([b"abc"])
    other = files.open(elsewhere, create=True)
    held_up = HeldUp(descriptor_io.open_descriptor)
    monkeypatch.setattr(descriptor_io, "open_descriptor", held_up)
    read: list[bytes] = []
    opening = threading.Thread(target=lambda: read.append(files.open(path).read(0, 3)))
    opening.start()
    assert held_up.begun.wait(10)
    # Were the lock held, this would wait for what goes on below only.
    other.append([b"served"])
    files.rename(elsewhere, f"{directory}/renamed")
    assert (other.read(0, 6), held_up.may_go_on.is_set()) == (b"served", False)
    renaming = threading.Thread(target=lambda: files.rename(path, f"{directory}/moved"))
    renaming.start()
    assert os.path.exists(path), "a name that is being opened is not changed"
    held_up.may_go_on.set()
    opening.join()
    renaming.join()
    assert (read, os.path.exists(path)) == ([b"abc"], False)


def test_other_files_are_used_while_one_is_renamed_slowly(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{directory}/slow"
    file = files.open(path, create=True)
    file.append([b"abc"])
    other = files.open(f"{directory}/other", create=True)
    held_up = HeldUp(os.replace)
    monkeypatch.setattr(os, "replace", held_up)
    renaming = threading.Thread(target=lambda: files.rename(path, f"{directory}/moved"))
    renaming.start()
    assert held_up.begun.wait(10)
    other.append([b"served"])
    read: list[bytes] = []
    reading = threading.Thread(target=lambda: read.append(file.read(0, 3)))
    reading.start()
    assert (other.read(0, 6), held_up.may_go_on.is_set()) == (b"served", False)
    held_up.may_go_on.set()
    renaming.join()
    reading.join()
    assert (read, file.path) == ([b"abc"], f"{directory}/moved")


def test_opened_renamed_and_removed_by_many_threads_at_once(
    files: RealFileSystem, directory: str
) -> None:
    """Each file goes to and fro between two names, and is always itself."""
    opened = [files.open(f"{directory}/{number}", create=True) for number in range(12)]
    for number, file in enumerate(opened):
        file.append([b"%3d" % number])
    wrong: list[object] = []

    def rename_to_and_fro(number: int) -> None:
        for _ in range(100):
            files.rename(f"{directory}/{number}", f"{directory}/{number}.moved")
            files.rename(f"{directory}/{number}.moved", f"{directory}/{number}")

    def read(first: int) -> None:
        for turn in range(600):
            number = (first + turn) % len(opened)
            try:
                if opened[number].read(0, 3) != b"%3d" % number:
                    wrong.append(number)
            except OSError as error:
                wrong.append(error)

    threads = [
        *(threading.Thread(target=rename_to_and_fro, args=(number,)) for number in range(6)),
        *(threading.Thread(target=read, args=(first,)) for first in range(3)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert files.open_descriptors <= 4


def test_appends_reads_and_syncs_from_many_threads_do_not_mix(
    files: RealFileSystem, directory: str
) -> None:
    opened = [files.open(f"{directory}/{number}", create=True) for number in range(12)]
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for turn in range(200):
                file = opened[own]
                assert file.append([b"%02d%04d" % (own, turn)]) == turn * 6
                other = opened[(own + turn) % 12]
                seen = other.read(0, 2)
                assert seen in (b"", b"%02d" % ((own + turn) % 12))
                if turn % 50 == 0:
                    other.sync()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert all(file.size() == 1200 for file in opened)


def test_a_short_write_is_continued(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def three_bytes_at_most(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:3], position)

    monkeypatch.setattr(descriptor_io, "pwritev", three_bytes_at_most)
    file = files.open(f"{directory}/a", create=True)
    assert file.append([b"ab", b"cdefgh", b"", b"ijk"]) == 0
    assert file.append([b"lmnop"]) == 11
    assert file.read(0, 50) == b"abcdefghijklmnop"


def test_a_failed_append_leaves_the_file_as_it_was(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"kept"])

    def half_then_full(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if position > 4:
            raise fail_with(errno.ENOSPC)
        return os.pwrite(descriptor, b"".join(buffers)[:2], position)

    with monkeypatch.context() as patch:
        patch.setattr(descriptor_io, "pwritev", half_then_full)
        with pytest.raises(OSError, match="No space left") as caught:
            file.append([b"lost"])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 4
    assert file.append([b"next"]) == 4
    assert file.read(0, 8) == b"keptnext"


def test_a_file_that_cannot_be_cut_back_is_not_appended_to_again(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{directory}/a", create=True)

    def failing(*_: object) -> int:
        raise fail_with(errno.EIO)

    with monkeypatch.context() as patch:
        patch.setattr(descriptor_io, "pwritev", failing)
        patch.setattr(os, "ftruncate", failing)
        with pytest.raises(OSError, match="could not be cut back"):
            file.append([b"lost"])
    with pytest.raises(OSError, match="could not be cut back"):
        file.append([b"next"])


def test_a_file_whose_sync_failed_never_claims_to_be_synced(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abc"])

    def failing(_descriptor: int) -> None:
        raise fail_with(errno.EIO)

    with monkeypatch.context() as patch:
        patch.setattr(descriptor_io, "sync_data", failing)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    with pytest.raises(OSError, match="earlier sync failed"):
        file.sync()
    assert file.read(0, 3) == b"abc"


def test_seeking_stands_in_where_positioned_calls_are_missing(
    files: RealFileSystem, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptor_io, "pread", descriptor_io.seek_and_read)
    monkeypatch.setattr(descriptor_io, "pwritev", descriptor_io.seek_and_write)
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abc"])
    assert file.append([b"d", b"ef"]) == 3
    assert file.read(1, 4) == b"bcde"
    assert file.read(4, 40) == b"ef"


def test_running_out_of_descriptors_closes_idle_ones_and_goes_on(directory: str) -> None:
    script = (
        "import resource, sys\n"
        "from headrace.log.real_files import RealFileSystem\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "files = RealFileSystem(open_files_max=10_000)\n"
        "opened = [files.open(f'{sys.argv[1]}/{n}', create=True) for n in range(300)]\n"
        "for file in opened: file.append([file.path.encode()])\n"
        "for file in opened: assert file.read(0, 999) == file.path.encode(); file.sync()\n"
        "print(files.open_descriptors)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, directory], capture_output=True, text=True, check=True
    )
    assert 0 < int(result.stdout) < 40


def test_the_open_file_limit_is_raised_to_the_hard_limit() -> None:
    script = (
        "import resource\n"
        "from headrace.log.descriptor_io import raise_open_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "print(raise_open_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "print(raise_open_file_limit())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["512", "512", "512"]


def test_the_log_leaves_descriptors_for_connections() -> None:
    assert open_files_max_for(1024) == 512
    assert open_files_max_for(1 << 20) == 16384
    assert open_files_max_for(20) == 16


def test_a_lock_dies_with_its_process(files: RealFileSystem, directory: str) -> None:
    script = (
        "import os, sys\n"
        "from headrace.log.real_files import RealFileSystem\n"
        "lock = RealFileSystem().lock(sys.argv[1])\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(1)\n"
    )
    path = f"{directory}/.lock"
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            files.lock(path)
        holder.stdin.close()
        holder.wait(10)
    files.lock(path).release()


def test_opening_without_a_free_descriptor_is_told_from_a_failure(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(fail_with(errno.EMFILE)))
    with pytest.raises(NotTried):
        descriptor_io.open_descriptor(f"{directory}/f", create=True)
    with pytest.raises(NotTried):
        descriptor_io.sync_directory(directory)
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(fail_with(errno.EACCES)))
    with pytest.raises(OSError, check=lambda error: not isinstance(error, NotTried)):
        descriptor_io.open_descriptor(f"{directory}/f", create=True)
