"""Locks on paths of files that are being opened or renamed; other paths do not wait."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PathLocks:
    """A path is locked for a system call or two, however long the disk takes for these.

    Who wants the same path, or one above or below it, waits until then. For any thread.
    """

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def locked(self, *names: str) -> Iterator[None]:
        with self._changed:
            while any(map(self._is_locked, names)):
                self._changed.wait()
            self._paths.update(names)
        try:
            yield
        finally:
            with self._changed:
                self._paths.difference_update(names)
                self._changed.notify_all()

    def _is_locked(self, name: str) -> bool:
        return any(
            name == other or name.startswith(other + "/") or other.startswith(name + "/")
            for other in self._paths
        )
