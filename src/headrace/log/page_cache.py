"""Reading from the page cache alone, without waiting for the disk.

Where records lie is found in indexes and batch headers, on the event loop. These are nearly always
in the page cache; where they are not, a read under `CACHED_READS_ONLY` raises `NotInPageCache`, and
the caller has a worker load them and reads again. In other threads, and without it, a read waits
for the disk.
"""

import threading
from contextlib import suppress
from typing import Final

from headrace.core.files import File


class _ThreadState(threading.local):
    cached_reads_only = False


_this_thread = _ThreadState()


class NotInPageCache(Exception):
    """Part of a file is not in the page cache."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{file.path} from {position} on")
        self._file = file
        self._position = position
        self._size = size

    def load(self) -> None:
        """For a worker. What fails here fails again when it is read, and is reported then."""
        with suppress(OSError):
            self._file.read(self._position, self._size)


class _CachedReadsOnly:
    """A plain object, since every fetch comes through here."""

    def __enter__(self) -> None:
        _this_thread.cached_reads_only = True

    def __exit__(self, *_: object) -> None:
        _this_thread.cached_reads_only = False


CACHED_READS_ONLY: Final = _CachedReadsOnly()
"""`with CACHED_READS_ONLY`: what this thread reads is in memory, or it raises `NotInPageCache`."""


def may_read_disk() -> bool:
    """Whether this thread may wait for the disk."""
    return not _this_thread.cached_reads_only
