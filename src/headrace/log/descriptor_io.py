"""Positioned reads and writes, syncs and locks on plain file descriptors, on every platform.

POSIX has `pread`, `pwritev` and `fdatasync`; Windows has none of them, so there a lock around
seek-and-read stands in. macOS answers `fsync` before the drive's own cache is empty and needs
`F_FULLFSYNC`. Everything here takes a descriptor, never a path it would have to keep.
"""

import errno
import os
import sys
import threading
from collections.abc import Callable, Sequence

from headrace.core.files import NOT_TRIED, Buffer, NotTried

# The most buffers one `pwritev` takes; POSIX systems agree on this one.
BUFFERS_PER_CALL_MAX = 1024

_OPEN_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_seek_lock = threading.Lock()
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


def open_descriptor(
    path: str, *, write: bool = True, create: bool = False, truncate: bool = False
) -> int:
    """Open for reading and writing; without `create` a missing file is an error.

    `NotTried` if the process or the system has no descriptor left.
    """
    flags = _OPEN_FLAGS | (os.O_RDWR if write else os.O_RDONLY)
    return _open(path, flags | (os.O_CREAT if create else 0) | (os.O_TRUNC if truncate else 0))


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in NOT_TRIED:
            raise NotTried(error.errno, error.strerror, path) from error
        raise


def seek_and_read(descriptor: int, size: int, position: int) -> bytes:
    """`os.pread` for platforms without it."""
    with _seek_lock:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)


def seek_and_write(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """`os.pwritev` for platforms without it; like it, may write less than all."""
    with _seek_lock:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, buffers[0] if len(buffers) == 1 else b"".join(buffers))


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", seek_and_read)
pwritev: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", seek_and_write)


def read_range(descriptor: int, position: int, size: int) -> bytes:
    """Up to `size` bytes from `position`; short only at the end of the file."""
    data = pread(descriptor, size, position)
    if len(data) == size:
        return data
    pieces = [data]
    missing = size - len(data)
    while data and missing > 0:
        data = pread(descriptor, missing, position + size - missing)
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


if hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT"):
    # File systems that do not know whether a page is in memory.
    _CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

    def read_cached(descriptor: int, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer with what is in the page cache; 0 if there is nothing of it."""
        try:
            return os.preadv(descriptor, (buffer,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _CANNOT_TELL:
                raise
            return os.preadv(descriptor, (buffer,), position)
else:

    def read_cached(descriptor: int, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer; this platform does not know what is in memory."""
        data = pread(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)


def read_range_cached(descriptor: int, position: int, size: int) -> bytes | None:
    """`read_range` of what is in the page cache; None if some of it is not."""
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = read_cached(descriptor, position + filled, data[filled:])
        if not count:
            if position + filled < os.fstat(descriptor).st_size:
                return None
            break
        filled += count
    return bytes(data[:filled])


def write_range(descriptor: int, position: int, buffers: Sequence[Buffer]) -> int:
    """Write all buffers from `position` on; return the position after the last byte."""
    if len(buffers) <= BUFFERS_PER_CALL_MAX:
        total = sum(map(len, buffers))
        written = pwritev(descriptor, buffers, position)
        if written == total:
            return position + total
    else:
        written = 0
    # The rare way: too many buffers for one call, or the kernel took only a part of them.
    for buffer in buffers:
        view = memoryview(buffer)
        if written >= len(view):
            written -= len(view)
            position += len(view)
            continue
        view, position, written = view[written:], position + written, 0
        while view:
            count = pwritev(descriptor, [view], position)
            if count == 0:
                raise OSError(errno.EIO, "the file took no bytes")
            view, position = view[count:], position + count
    return position


def reserve(descriptor: int, size: int) -> None:
    """Ask for disk space up to `size` bytes without changing the file's size.

    Only Linux can (`fallocate` with KEEP_SIZE, which Python does not offer); elsewhere, and on
    file systems that cannot, nothing happens. Raises `OSError` if there is not so much space.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # rarely wanted, and slow to import

    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(0), ctypes.c_int64(size)
    if libc.fallocate64(descriptor, _KEEP_SIZE, offset, length) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))


if sys.platform == "darwin":
    import fcntl

    def sync_data(descriptor: int) -> None:
        """Return when the file's bytes are on stable storage, the drive's cache included."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # not every file system knows it (network shares)
            os.fsync(descriptor)
else:
    sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


if sys.platform == "win32":
    import msvcrt

    def sync_directory(path: str) -> None:
        """Nothing to do: NTFS journals names by itself and offers no call for it."""

    def lock_descriptor(descriptor: int) -> None:
        """Lock the file exclusively or raise `BlockingIOError`; closing it unlocks."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process") from error

    def raise_open_file_limit() -> int:
        """The most files this process may open; Windows has a fixed one."""
        return 8192

    def space(path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: in all, and still to be written."""
        import shutil

        usage = shutil.disk_usage(path)
        return usage.total, usage.free
else:
    import fcntl
    import resource

    def sync_directory(path: str) -> None:
        """Return when the names in the directory are on stable storage."""
        descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock_descriptor(descriptor: int) -> None:
        """Lock the file exclusively or raise `BlockingIOError`; closing it unlocks."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def raise_open_file_limit() -> int:
        """Raise the soft limit of open files to the hard one; return the limit now in force."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return 1 << 20 if soft == resource.RLIM_INFINITY else soft
        # macOS refuses to go above a limit of its own whatever the hard limit says.
        for target in (wanted, 10240):
            if target > soft:
                try:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
                except (OSError, ValueError):
                    continue
                return target
        return soft

    def space(path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: in all, and still to be written."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
