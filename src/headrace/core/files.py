"""The only way to the disk: a handful of calls, with a real and a simulated form.

A crash may lose whatever was not synced: file contents until `File.sync`, and names
(created, renamed, removed) until `FileSystem.sync_directory` of the directory that holds
them. Code that promises durability must call both; the simulated form takes back whatever
was not synced when it cuts the power.

A sync that *failed* must not be tried again: the kernel may have dropped the bytes and would call
the next one a success. One that could not be tried (`NotTried`) may.

Paths are plain strings with `/`. All calls are synchronous and raise `OSError`; the caller
picks the thread. A `File` may be read, appended to and synced from different threads, but has
one appender at a time.
"""

import errno
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# Of opening a file: the process or the system lacks something at this moment.
NOT_TRIED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})


class NotTried(OSError):
    """The file could not be opened for the call, for want of descriptors or memory.

    Nothing was read, written or synced, so the same call may be made again later.
    """


class File(Protocol):
    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Bytes in the file, appended ones included."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers at the end, in order; return the position of the first byte.

        All or nothing for the caller: after an `OSError` the file is cut back to where it
        was (or, if that fails too, the error says so and the file must not be used further).
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; short only at the end of the file."""
        ...

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer as far as that takes no waiting for the disk; how many bytes it got.

        0 where the disk would have to be waited for, and at the end of the file.
        """
        ...

    @property
    def read_failed(self) -> bool:
        """The last read has failed: nobody should promise bytes of this file unread."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when every byte appended before the call is on stable storage."""
        ...

    def close(self) -> None: ...


class FileRange:
    """Bytes of a file that stay there until they are wanted; what was taken is cut off its front.

    They must not change meanwhile. The file may go: whoever reads then gets an `OSError`.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """All of it, now."""
        return self.file.read(self.position, self.size)

    def read_cached(self) -> bytearray | None:
        """All of it if nothing has to be waited for."""
        data = bytearray(self.size)
        return data if self.file.read_cached(self.position, data) == self.size else None

    def skip(self, count: int) -> None:
        self.position += count
        self.size -= count


# What an answer is made of.
Part = Buffer | FileRange


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; without `create` a missing file is an error."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[str]:
        """Names (not paths) in the directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents; existing ones are fine."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: Buffer) -> None:
        """Create or replace, contents not synced. For atomic replacement see `log.checkpoints`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new` if it exists (files)."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: in all, and still to be written."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the lock file exclusively or raise `BlockingIOError` at once."""
        ...
