"""One suite over the real and the simulated file system: the simulated one can be trusted."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.files import FileSystem
from headrace.log.real_files import RealFileSystem
from tests.simulation.disk import SimulatedFileSystem


@pytest.fixture(params=["real", "real with one descriptor", "simulated"])
def files(request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    if request.param == "simulated":
        yield SimulatedFileSystem(now_ms=lambda: 1_700_000_000_000)
    else:
        real = RealFileSystem(open_files_max=1 if "one" in request.param else 512)
        yield real
        real.close()


@pytest.fixture
def directory(files: FileSystem, tmp_path: Path) -> str:
    path = tmp_path.as_posix()
    files.make_directory(path)
    return path


def test_appends_follow_each_other(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    assert file.append([b"one"]) == 0
    assert file.append([b"tw", bytearray(b"o-"), memoryview(b"three")]) == 3
    assert file.size() == 12
    assert file.read(0, 100) == b"onetwo-three"


def test_more_buffers_than_one_call_takes_are_all_written(
    files: FileSystem, directory: str
) -> None:
    file = files.open(f"{directory}/a", create=True)
    pieces = [bytes([number % 251]) * (number % 3) for number in range(3000)]
    file.append([b"start"])
    assert file.append(pieces) == 5
    assert file.read(5, 10_000) == b"".join(pieces)


def test_an_empty_append_changes_nothing(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abc"])
    assert file.append([]) == 3
    assert file.append([b""]) == 3
    assert file.size() == 3


def test_a_read_is_short_only_at_the_end(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abcdef"])
    assert file.read(2, 3) == b"cde"
    assert file.read(4, 10) == b"ef"
    assert file.read(6, 10) == b""
    assert file.read(60, 10) == b""


def test_a_reopened_file_appends_at_its_end(files: FileSystem, directory: str) -> None:
    first = files.open(f"{directory}/a", create=True)
    first.append([b"abc"])
    first.close()
    second = files.open(f"{directory}/a")
    assert second.append([b"def"]) == 3
    assert files.read_file(f"{directory}/a") == b"abcdef"


def test_a_missing_file_is_an_error_unless_created(files: FileSystem, directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        files.open(f"{directory}/missing/a", create=True)
    with pytest.raises(FileNotFoundError):
        files.read_file(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        files.size(f"{directory}/a")


def test_a_cut_file_appends_at_the_cut(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    assert file.append([b"X"]) == 2
    assert file.read(0, 10) == b"abX"


def test_cutting_beyond_the_end_fills_with_zeros(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"ab"])
    file.truncate(4)
    assert file.append([b"c"]) == 4
    assert file.read(0, 10) == b"ab\0\0c"


def test_two_handles_see_one_file(files: FileSystem, directory: str) -> None:
    writer = files.open(f"{directory}/a", create=True)
    reader = files.open(f"{directory}/a")
    writer.append([b"abc"])
    assert reader.size() == 3
    assert reader.read(0, 3) == b"abc"
    writer.close()
    assert reader.read(1, 1) == b"b"


def test_an_open_file_follows_its_new_name(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abc"])
    files.rename(f"{directory}/a", f"{directory}/b")
    files.open(f"{directory}/other", create=True).append([b"x"])
    assert file.path == f"{directory}/b"
    assert file.append([b"def"]) == 3
    assert file.read(0, 6) == b"abcdef"
    assert files.list_directory(directory) == ["b", "other"]


def test_an_open_file_follows_its_renamed_directory(files: FileSystem, directory: str) -> None:
    files.make_directory(f"{directory}/topic-0")
    file = files.open(f"{directory}/topic-0/a", create=True)
    file.append([b"abc"])
    files.rename(f"{directory}/topic-0", f"{directory}/topic-0.gone")
    files.open(f"{directory}/other", create=True).append([b"x"])
    assert file.path == f"{directory}/topic-0.gone/a"
    assert file.read(0, 3) == b"abc"


def test_a_rename_replaces_the_file_in_its_place(files: FileSystem, directory: str) -> None:
    files.write_file(f"{directory}/a", b"old")
    replaced = files.open(f"{directory}/a")
    files.write_file(f"{directory}/a.tmp", b"new")
    files.rename(f"{directory}/a.tmp", f"{directory}/a")
    assert files.read_file(f"{directory}/a") == b"new"
    assert files.list_directory(directory) == ["a"]
    with pytest.raises(FileNotFoundError):
        replaced.read(0, 3)


def test_a_removed_file_cannot_be_used_even_if_its_name_comes_back(
    files: FileSystem, directory: str
) -> None:
    file = files.open(f"{directory}/a", create=True)
    files.remove(f"{directory}/a")
    files.write_file(f"{directory}/a", b"another")
    with pytest.raises(FileNotFoundError):
        file.read(0, 3)
    with pytest.raises(FileNotFoundError):
        file.append([b"x"])
    file.close()
    assert files.read_file(f"{directory}/a") == b"another"


def test_a_directory_is_not_removed_as_a_file(files: FileSystem, directory: str) -> None:
    files.make_directory(f"{directory}/t")
    file = files.open(f"{directory}/t/a", create=True)
    file.append([b"abc"])
    with pytest.raises(IsADirectoryError):
        files.remove(f"{directory}/t")
    assert file.read(0, 3) == b"abc"


def test_a_closed_file_cannot_be_used(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(FileNotFoundError):
        file.size()


def test_removing_a_tree_removes_all_below(files: FileSystem, directory: str) -> None:
    files.make_directory(f"{directory}/t/deep/er")
    file = files.open(f"{directory}/t/deep/er/a", create=True)
    files.write_file(f"{directory}/t/b", b"x")
    files.write_file(f"{directory}/tt", b"stays")
    files.remove_tree(f"{directory}/t")
    assert files.list_directory(directory) == ["tt"]
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)


def test_replacing_a_file_forgets_its_longer_past(files: FileSystem, directory: str) -> None:
    files.write_file(f"{directory}/a", b"a long text")
    files.write_file(f"{directory}/a", b"short")
    assert files.read_file(f"{directory}/a") == b"short"
    assert files.size(f"{directory}/a") == 5


def test_directories_are_made_with_their_parents_and_listed_in_order(
    files: FileSystem, directory: str
) -> None:
    files.make_directory(f"{directory}/z/y")
    files.make_directory(f"{directory}/z/y")
    files.write_file(f"{directory}/b", b"")
    files.write_file(f"{directory}/a", b"")
    assert files.list_directory(directory) == ["a", "b", "z"]
    assert files.exists(f"{directory}/z/y")
    assert not files.exists(f"{directory}/z/x")
    with pytest.raises(FileNotFoundError):
        files.list_directory(f"{directory}/missing")


def test_a_directory_is_not_replaced_by_a_rename_while_it_holds_something(
    files: FileSystem, directory: str
) -> None:
    files.make_directory(f"{directory}/a")
    files.make_directory(f"{directory}/b")
    files.write_file(f"{directory}/b/c", b"")
    with pytest.raises(OSError, match=r"empty|exists") as caught:
        files.rename(f"{directory}/a", f"{directory}/b")
    assert caught.value.errno in (errno.ENOTEMPTY, errno.EEXIST)


def test_syncs_of_files_and_directories_are_accepted(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/a", create=True)
    file.append([b"abc"])
    file.sync()
    files.sync_directory(directory)
    with pytest.raises(FileNotFoundError):
        files.sync_directory(f"{directory}/missing")


def test_a_lock_is_held_by_one_until_released(files: FileSystem, directory: str) -> None:
    lock = files.lock(f"{directory}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{directory}/.lock")
    lock.release()
    lock.release()
    again = files.lock(f"{directory}/.lock")
    again.release()


def test_the_disk_knows_times_and_free_space(files: FileSystem, directory: str) -> None:
    files.write_file(f"{directory}/a", b"abc")
    assert files.modified_ms(f"{directory}/a") > 1_600_000_000_000
    assert 0 < files.space(directory)[1] <= files.space(directory)[0]
