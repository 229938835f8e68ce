"""A disk in memory that forgets what was not synced, breaks when told, and counts every step.

Every call that changes the disk is an *operation* with a number. After each one an observer
may look, so one run of a script shows the disk as every possible crash would find it:

    disk.observer = lambda operation: crash_images.append(disk.copy())

Two kinds of crash: `after_kill` (the kernel lives: every written byte survives, unsynced ones
are still unsynced) and `after_power_cut` (only what a `Survival` picks survives). Both give the
disk to the next process; whatever the old one still calls raises `ProcessDied`, a
`BaseException` that no handler of the product swallows.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from headrace.core.files import NOT_TRIED, Buffer, NotTried
from tests.simulation.inodes import (
    Change,
    DirectoryInode,
    FileInode,
    Inode,
    Survival,
    copy_tree,
    survivor_of,
)
from tests.simulation.processes import ProcessDied

UNLIMITED_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Operation:
    """One step that changed the disk (or made a change stable)."""

    number: int
    kind: str
    path: str
    site: str  # where the product called: file and line
    honest: bool = True  # False for a sync that did nothing

    def __str__(self) -> str:
        return f"{self.number} {self.kind} {self.path} ({self.site})"


@dataclass(slots=True)
class Fault:
    """Fails calls of one kind: the next `times` of them whose path contains `path_part`."""

    kind: str
    error: int
    path_part: str = ""
    times: int = 1_000_000_000


@dataclass(slots=True)
class Faults:
    """What is wrong with the disk at the moment."""

    rules: list[Fault] = field(default_factory=list)
    capacity_bytes: int = UNLIMITED_BYTES
    writes_without_space: int = 0
    reads_wait: bool = False  # nothing is in memory: every read has to wait for the disk
    ignore_syncs_below: str | None = None  # syncs of paths that begin so do nothing
    skipped_sync_sites: set[str] = field(default_factory=set)

    def check(self, kind: str, path: str) -> None:
        for rule in self.rules:
            if rule.kind == kind and rule.times > 0 and rule.path_part in path:
                rule.times -= 1
                error = NotTried if rule.error in NOT_TRIED else OSError
                raise error(rule.error, os.strerror(rule.error), path)


class SimulatedFile:
    """An open file of one simulated process."""

    def __init__(self, disk: "SimulatedFileSystem", path: str, inode: FileInode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self.gone = False
        self._sync_failed = False
        self.read_failed = False

    def size(self) -> int:
        return len(self._used().visible)

    def append(self, buffers: Sequence[Buffer]) -> int:
        inode = self._used()
        position = len(inode.visible)
        data = b"".join(buffers)
        self._disk.faults.check("write", self.path)
        self._disk.require_space(len(data), self.path)
        self._disk.change(inode, Change(position, data))
        self._disk.record("append", self.path)
        return position

    def read(self, position: int, size: int) -> bytes:
        inode = self._used()
        try:
            self._disk.faults.check("read", self.path)
        except OSError:
            self.read_failed = True
            raise
        self.read_failed = False
        return bytes(inode.visible[position : position + size])

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        if self._disk.faults.reads_wait:
            return 0
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        inode = self._used()
        self._disk.faults.check("truncate", self.path)
        self._disk.change(inode, Change(size, None))
        self._disk.record("truncate", self.path)

    def sync(self) -> None:
        inode = self._used()
        if self._sync_failed:
            raise OSError(errno.EIO, "an earlier sync failed", self.path)
        try:
            self._disk.faults.check("sync", self.path)
        except NotTried:
            raise
        except OSError:
            self._sync_failed = True
            inode.fail_sync()
            raise
        # What others append while the sync goes on is not covered by it.
        covered = inode.changes_ever()
        honest = self._disk.sync_is_honest(self.path)
        self._disk.pause_point()
        self._disk.require_alive()
        if honest:
            inode.sync(covered)
        self._disk.record("sync", self.path, honest=honest)

    def close(self) -> None:
        self.gone = True
        self._disk.forget(self)

    def _used(self) -> FileInode:
        self._disk.require_alive()
        if self.gone:
            raise FileNotFoundError(errno.ENOENT, "the file was closed or removed", self.path)
        return self._inode


class SimulatedLock:
    """A lock held until it is released or its process dies."""

    def __init__(self, disk: "SimulatedFileSystem", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimulatedFileSystem:
    """Implements `core.files.FileSystem` in memory."""

    def __init__(
        self, now_ms: Callable[[], int] = lambda: 0, *, keeps_operations: bool = True
    ) -> None:
        """Long runs do without `operations`, which grow for ever, unless an observer looks."""
        self.faults = Faults()
        self.operations: list[Operation] = []
        self.operations_done = 0
        self._keeps_operations = keeps_operations
        self.observer: Callable[[Operation], None] | None = None
        # Called where a real call takes long: in the middle of a sync.
        self.pause_point: Callable[[], None] = lambda: None
        self.locked: set[str] = set()
        self._now_ms = now_ms
        self._root = DirectoryInode()
        self._open: dict[SimulatedFile, None] = {}
        self._alive = True

    # What a crash does.

    def after_kill(self) -> "SimulatedFileSystem":
        """The process is gone, the machine stays: every written byte is still visible."""
        return self._handed_over(self._root)

    def after_power_cut(self, survival: Survival) -> "SimulatedFileSystem":
        """The machine is gone: keep what is stable and what `survival` picks of the rest."""
        return self._handed_over(survivor_of(self._root, survival))

    def _handed_over(self, root: DirectoryInode) -> "SimulatedFileSystem":
        self._alive = False
        self._root = DirectoryInode()
        heir = SimulatedFileSystem(self._now_ms, keeps_operations=self._keeps_operations)
        heir._root = root
        heir.faults = self.faults
        return heir

    def copy(self) -> "SimulatedFileSystem":
        """The same disk, unsynced changes and all, without faults, in no process's hands."""
        other = SimulatedFileSystem(self._now_ms)
        other._root = copy_tree(self._root)
        return other

    def sync_everything(self) -> None:
        """Make all that exists stable: the state a test starts from. Not an operation."""
        pending: list[Inode] = [self._root]
        while pending:
            inode = pending.pop()
            inode.sync()
            if isinstance(inode, DirectoryInode):
                pending.extend(inode.visible.values())

    # What the product calls.

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.faults.check("open", path)
        directory, name = self._parent(path)
        inode = directory.visible.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = FileInode()
            inode.modified_ms = self._now_ms()
            directory.change({name: inode})
            self.record("create", path)
        if isinstance(inode, DirectoryInode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = SimulatedFile(self, path, inode)
        self._open[file] = None
        return file

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        inode = self._inode(path)
        return len(inode.visible)

    def modified_ms(self, path: str) -> int:
        inode = self._inode(path)
        return inode.modified_ms if isinstance(inode, FileInode) else 0

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._directory(path).visible)

    def make_directory(self, path: str) -> None:
        self.require_alive()
        directory, so_far = self._root, ""
        for name in _names(path):
            so_far = f"{so_far}/{name}"
            child = directory.visible.get(name)
            if child is None:
                self.faults.check("make_directory", so_far)
                child = DirectoryInode()
                directory.change({name: child})
                self.record("make_directory", so_far)
            if isinstance(child, FileInode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), so_far)
            directory = child

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def write_file(self, path: str, data: Buffer) -> None:
        file = self.open(path, create=True)
        try:
            if file.size():
                file.truncate(0)
            file.append([data])
        finally:
            file.close()

    def rename(self, old: str, new: str) -> None:
        self.faults.check("rename", old)
        inode = self._inode(old)
        old_directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        replaced = new_directory.visible.get(new_name)
        if isinstance(replaced, DirectoryInode) and (
            isinstance(inode, FileInode) or replaced.visible
        ):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self._lose(self._files_at(new) if old != new else [])
        if old_directory is new_directory:
            old_directory.change({old_name: None, new_name: inode})
        else:  # two directories are two journals: a crash may leave both names, or none
            new_directory.change({new_name: inode})
            old_directory.change({old_name: None})
        for file in self._files_at(old):
            file.path = new + file.path[len(old) :]
        self.record("rename", f"{old} -> {new}")

    def remove(self, path: str) -> None:
        self.faults.check("remove", path)
        if isinstance(self._inode(path), DirectoryInode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._unlink(path)

    def remove_tree(self, path: str) -> None:
        self.faults.check("remove", path)
        for name in self.list_directory(path):
            child = f"{path}/{name}"
            if isinstance(self._inode(child), DirectoryInode):
                self.remove_tree(child)
            else:
                self._unlink(child)
        self._unlink(path)

    def sync_directory(self, path: str) -> None:
        self.faults.check("sync_directory", path)
        directory = self._directory(path)
        honest = self.sync_is_honest(path)
        self.pause_point()
        self.require_alive()
        if honest:
            directory.sync()
        self.record("sync_directory", path, honest=honest)

    def space(self, path: str) -> tuple[int, int]:
        self._inode(path)
        capacity = self.faults.capacity_bytes
        return capacity, max(0, capacity - self._used_bytes())

    def lock(self, path: str) -> SimulatedLock:
        self.open(path, create=True).close()
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.locked.add(path)
        return SimulatedLock(self, path)

    # What files need of their disk.

    def change(self, inode: FileInode, change: Change) -> None:
        inode.change(change)
        inode.modified_ms = self._now_ms()

    def require_alive(self) -> None:
        if not self._alive:
            raise ProcessDied

    def record(self, kind: str, path: str, *, honest: bool = True) -> None:
        self.operations_done += 1
        if self.observer is None and not self._keeps_operations:
            return
        operation = Operation(self.operations_done, kind, path, _call_site(), honest)
        if self._keeps_operations:
            self.operations.append(operation)
        if self.observer is not None:
            self.observer(operation)

    def sync_is_honest(self, path: str) -> bool:
        faults = self.faults
        if faults.ignore_syncs_below is not None and path.startswith(faults.ignore_syncs_below):
            return False
        return not (faults.skipped_sync_sites and _calls_through(faults.skipped_sync_sites))

    def require_space(self, size: int, path: str) -> None:
        if self.faults.capacity_bytes < UNLIMITED_BYTES and size > self.space("/")[1]:
            self.faults.writes_without_space += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def forget(self, file: SimulatedFile) -> None:
        self._open.pop(file, None)

    def _used_bytes(self) -> int:
        total, pending = 0, [self._root]
        while pending:
            for inode in pending.pop().visible.values():
                if isinstance(inode, FileInode):
                    total += len(inode.visible)
                else:
                    pending.append(inode)
        return total

    def _unlink(self, path: str) -> None:
        directory, name = self._parent(path)
        self._lose(self._files_at(path))
        directory.change({name: None})
        self.record("remove", path)

    def _lose(self, files: Sequence[SimulatedFile]) -> None:
        for file in files:
            file.gone = True
            self._open.pop(file, None)

    def _files_at(self, path: str) -> list[SimulatedFile]:
        prefix = path + "/"
        return [f for f in self._open if f.path == path or f.path.startswith(prefix)]

    def _find(self, path: str) -> Inode | None:
        self.require_alive()
        inode: Inode | None = self._root
        for name in _names(path):
            if not isinstance(inode, DirectoryInode):
                return None
            inode = inode.visible.get(name)
        return inode

    def _inode(self, path: str) -> Inode:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _directory(self, path: str) -> DirectoryInode:
        inode = self._inode(path)
        if isinstance(inode, FileInode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return inode

    def _parent(self, path: str) -> tuple[DirectoryInode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _call_site() -> str:
    """File and line of the nearest caller outside this module."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return _site(frame)


def _calls_through(sites: set[str]) -> bool:
    """Whether the current call comes, directly or not, from one of these places."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _site(frame) in sites:
            return True
        frame = frame.f_back
    return False


def _site(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
