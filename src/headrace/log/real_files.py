"""The disk as the operating system gives it: `core.files.FileSystem` over descriptors.

A broker has far more files than a process may have open, so a `RealFile` is only a name and a
few numbers; its descriptor is opened on demand and kept in a bounded cache:

    File --borrow--> descriptor (open or reopened) --give back--> idle --evicted--> closed

A descriptor is never closed while a call is using it, whatever the thread. An open file
follows its name: after `rename` it is found under the new one, after `remove` every further
use of it raises `FileNotFoundError`.

Every call on every file takes the lock, so nothing under it waits for the disk: files are opened
and renamed outside. A name that is being opened or changed is in use meanwhile, and whoever wants
to do the same with it, or with a directory above it, waits.

A dirty file may be evicted: `fdatasync` on a new descriptor flushes the same inode, and Linux
reports a write-back error that nobody has seen yet to the next descriptor too. Clean files go
first all the same. Once a sync has failed, the kernel calls the lost pages clean and a second
sync would succeed without them, so a file whose sync failed never syncs again.
"""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.core.files import Buffer, NotTried
from headrace.log import descriptor_io
from headrace.log.open_files import OpenFiles
from headrace.log.page_cache import NotInPageCache, may_read_disk
from headrace.log.path_locks import PathLocks

T = TypeVar("T")

OPEN_FILES_MAX_DEFAULT = 512
# Looking further for a clean file costs more than it is worth where nobody syncs.
_DIRTY_SEEN_MAX = 8
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def open_files_max_for(limit: int) -> int:
    """How many of a process's descriptors the log may keep; connections need the others."""
    return max(16, min(limit // 2, 16384))


class RealFile:
    """One file by name; borrows a descriptor from its file system for each call."""

    __slots__ = (
        "_closed",
        "_descriptor",
        "_dirty",
        "_end",
        "_failure",
        "_files",
        "_recent",
        "_users",
        "path",
        "read_failed",
    )

    def __init__(self, files: "RealFileSystem", path: str) -> None:
        self.path = path
        self._files = files
        self._descriptor = -1
        self._users = 0
        self._end = -1  # where the next append goes; this file has one appender
        self._recent = True  # used since eviction last looked at it
        self._dirty = False
        self._closed = False
        self._failure: str | None = None
        self.read_failed = False

    def size(self) -> int:
        descriptor = self._files._acquire_descriptor(self)
        try:
            return os.fstat(descriptor).st_size
        finally:
            self._files._release_descriptor(self)

    def append(self, buffers: Sequence[Buffer]) -> int:
        descriptor = self._files._acquire_descriptor(self)
        try:
            if self._failure is not None:
                raise OSError(errno.EIO, self._failure, self.path)
            position = self._end
            if position < 0:
                position = self._end = os.fstat(descriptor).st_size
            self._dirty = True
            try:
                self._end = descriptor_io.write_range(descriptor, position, buffers)
            except OSError as error:
                self._cut_back(descriptor, position)
                raise OSError(error.errno, error.strerror, self.path) from error
            return position
        finally:
            self._files._release_descriptor(self)

    def _cut_back(self, descriptor: int, position: int) -> None:
        try:
            os.ftruncate(descriptor, position)
        except OSError as error:
            self._failure = f"a failed append could not be cut back: {error.strerror}"
            raise OSError(errno.EIO, self._failure, self.path) from error

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._files._acquire_descriptor(self)
        try:
            if may_read_disk():
                data = descriptor_io.read_range(descriptor, position, size)
            else:
                cached = descriptor_io.read_range_cached(descriptor, position, size)
                if cached is None:
                    raise NotInPageCache(self, position, size)
                data = cached
        except OSError:
            self.read_failed = True
            raise
        finally:
            self._files._release_descriptor(self)
        self.read_failed = False
        return data

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        descriptor = self._files._acquire_descriptor(self)
        try:
            return descriptor_io.read_cached(descriptor, position, buffer)
        except OSError:
            self.read_failed = True
            raise
        finally:
            self._files._release_descriptor(self)

    def truncate(self, size: int) -> None:
        descriptor = self._files._acquire_descriptor(self)
        try:
            self._dirty = True
            os.ftruncate(descriptor, size)
            self._end = size
        finally:
            self._files._release_descriptor(self)

    def reserve(self, size: int) -> None:
        """Ask for disk space up to `size` bytes, the size stays (`preallocate`)."""
        descriptor = self._files._acquire_descriptor(self)
        try:
            descriptor_io.reserve(descriptor, size)
        finally:
            self._files._release_descriptor(self)

    def sync(self) -> None:
        descriptor = self._files._acquire_descriptor(self)
        try:
            if self._failure is not None:
                raise OSError(errno.EIO, self._failure, self.path)
            # Before the sync: what an appender adds meanwhile may not be covered by it.
            self._dirty = False
            try:
                descriptor_io.sync_data(descriptor)
            except OSError as error:
                self._dirty = True
                self._failure = f"an earlier sync failed: {error.strerror}"
                raise OSError(error.errno, error.strerror, self.path) from error
        finally:
            self._files._release_descriptor(self)

    def close(self) -> None:
        self._files._close(self)


class RealLock:
    """A lock file held open; released when closed, also by the death of the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = descriptor_io.open_descriptor(path, create=True)
        try:
            descriptor_io.lock_descriptor(self._descriptor)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealFileSystem:
    """Implements `core.files.FileSystem` with at most about `open_files_max` descriptors."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX_DEFAULT) -> None:
        self._open_files_max = open_files_max
        self._lock = threading.Lock()
        self._path_locks = PathLocks()
        self._open_files: OpenFiles[RealFile] = OpenFiles()
        # Files with a descriptor, oldest first; a second chance for those used since last seen.
        self._cached: dict[RealFile, None] = {}

    @property
    def open_descriptors(self) -> int:
        """Descriptors held right now."""
        return len(self._cached)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = RealFile(self, path)
        self._reopen_descriptor(file, create=create, is_new=True)
        self._release_descriptor(file)
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read_file(self, path: str) -> bytes:
        descriptor = self._evict_if_out_of_descriptors(
            lambda: descriptor_io.open_descriptor(path, write=False)
        )
        with open(descriptor, "rb", buffering=0) as file:
            return file.readall()

    def write_file(self, path: str, data: Buffer) -> None:
        descriptor = self._evict_if_out_of_descriptors(
            lambda: descriptor_io.open_descriptor(path, create=True, truncate=True)
        )
        try:
            descriptor_io.write_range(descriptor, 0, [data])
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        open_at = self._open_files.below if os.path.isdir(old) else self._open_files.at
        with self._path_locks.locked(old, new):
            with self._lock:
                moving = open_at(old)
                replaced = () if old == new else open_at(new)
                self._close_idle((*moving, *replaced))
            os.replace(old, new)
            with self._lock:
                for file in replaced:
                    self._discard(file)
                for file in moving:
                    if not file._closed:
                        self._open_files.discard(file)
                        file.path = new + file.path[len(old) :]
                        self._open_files.add(file)

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with self._lock:
            for file in self._open_files.at(path):
                self._discard(file)
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        with self._lock:
            for file in self._open_files.below(path):
                self._discard(file)
        for directory, directories, names in os.walk(path, topdown=False):
            for name in names:
                os.remove(os.path.join(directory, name))
            for name in directories:
                os.rmdir(os.path.join(directory, name))
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        self._evict_if_out_of_descriptors(lambda: descriptor_io.sync_directory(path))

    def _evict_if_out_of_descriptors(self, call: Callable[[], T]) -> T:
        """What needs a descriptor for a moment takes that of an idle file, if there is no other:
        flush and roll must go on when connections have taken all the rest."""
        while True:
            try:
                return call()
            except NotTried as error:
                with self._lock:
                    if error.errno not in _OUT_OF_DESCRIPTORS or not self._evict_one():
                        raise

    def space(self, path: str) -> tuple[int, int]:
        return descriptor_io.space(path)

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def close(self) -> None:
        """Close every descriptor; for a node that stops or is dropped without stopping."""
        with self._lock:
            for file in self._open_files.all():
                self._discard(file)

    def _acquire_descriptor(self, file: RealFile) -> int:
        with self._lock:
            if file._descriptor >= 0 and not file._closed:
                file._users += 1
                file._recent = True
                return file._descriptor
        return self._reopen_descriptor(file)

    def _reopen_descriptor(
        self, file: RealFile, *, create: bool = False, is_new: bool = False
    ) -> int:
        """Borrow what has to be opened first."""
        while True:
            path = file.path
            with self._path_locks.locked(path):
                if file.path == path:
                    return self._open_descriptor(file, create, is_new)
            # It got another name before this one was free.

    def _open_descriptor(self, file: RealFile, create: bool, is_new: bool) -> int:
        """Nobody else opens this file meanwhile, nor gives it another name."""
        with self._lock:
            self._require_open(file)
            descriptor = file._descriptor
            file._users += 1  # so that it is not closed again
        try:
            if descriptor < 0:  # not opened by another thread while we waited
                descriptor = self._open_path(file.path, create=create)
                with self._lock:
                    file._descriptor = descriptor
                    self._cached[file] = None
                    if is_new:
                        self._open_files.add(file)
                    self._evict()
            file._recent = True
            self._require_open(file)
        except BaseException:
            self._release_descriptor(file)
            raise
        return descriptor

    def _require_open(self, file: RealFile) -> None:
        if file._closed:
            raise FileNotFoundError(errno.ENOENT, "the file was closed or removed", file.path)

    def _release_descriptor(self, file: RealFile) -> None:
        with self._lock:
            file._users -= 1
            if file._closed and not file._users:
                self._close_descriptor(file)

    def _close(self, file: RealFile) -> None:
        with self._lock:
            self._discard(file)

    def _open_path(self, path: str, *, create: bool) -> int:
        while True:
            try:
                return descriptor_io.open_descriptor(path, create=create)
            except OSError as error:
                with self._lock:
                    if error.errno not in _OUT_OF_DESCRIPTORS or not self._evict_one():
                        raise

    def _evict(self) -> None:
        while len(self._cached) > self._open_files_max:
            if not self._evict_one():
                return  # all are in use at this moment: more than the limit for a while

    def _evict_one(self) -> bool:
        """Close one idle descriptor: unused lately, and clean if one is quickly found."""
        dirty: RealFile | None = None
        dirty_seen = 0
        for _ in range(2 * len(self._cached)):
            file = next(iter(self._cached))
            if not (file._users or file._recent):
                if not file._dirty:
                    self._close_descriptor(file)
                    return True
                dirty = dirty or file
                dirty_seen += 1
                if dirty_seen == _DIRTY_SEEN_MAX:
                    break
            file._recent = False
            del self._cached[file]
            self._cached[file] = None
        if dirty is not None:
            self._close_descriptor(dirty)
        return dirty is not None

    def _close_descriptor(self, file: RealFile) -> None:
        if file._descriptor >= 0:
            os.close(file._descriptor)
            file._descriptor = -1
            del self._cached[file]

    def _close_idle(self, files: Sequence[RealFile]) -> None:
        """Before a rename, which Windows refuses for what is open."""
        for file in files:
            if not file._users:
                self._close_descriptor(file)

    def _discard(self, file: RealFile) -> None:
        """Let go of a closed or removed file; a call still using it may finish."""
        self._open_files.discard(file)
        file._closed = True
        if not file._users:
            self._close_descriptor(file)
