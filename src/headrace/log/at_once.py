"""Looking into files without waiting for the disk.

Where records lie is found in indexes and batch headers, on the event loop. These are nearly always
in the page cache; where they are not, who looks `AT_ONCE` is told so by `NotAtHand`, has a worker
bring them in, and looks again. In other threads, and without it, a read waits for the disk.
"""

import threading
from contextlib import suppress
from typing import Final

from headrace.core.files import File


class _OfThisThread(threading.local):
    at_once = False


_this_thread = _OfThisThread()


class NotAtHand(Exception):
    """Part of a file is not in the page cache."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{file.path} from {position} on")
        self._file = file
        self._position = position
        self._size = size

    def bring_in(self) -> None:
        """For a worker. What fails here fails again when it is looked at, and is told then."""
        with suppress(OSError):
            self._file.read(self._position, self._size)


class _AtOnce:
    """A plain object, since every fetch comes through here."""

    def __enter__(self) -> None:
        _this_thread.at_once = True

    def __exit__(self, *_: object) -> None:
        _this_thread.at_once = False


AT_ONCE: Final = _AtOnce()
"""`with AT_ONCE`: what this thread reads is in memory, or it raises `NotAtHand`."""


def may_wait() -> bool:
    """Whether this thread may wait for the disk."""
    return not _this_thread.at_once
