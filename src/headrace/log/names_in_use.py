"""Names of files that somebody is opening or changing: one at a time, and nobody else waits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class NamesInUse:
    """A name is in use for a system call or two, however long the disk takes for these.

    Whoever wants the same name, or one above or below it, waits until then. For any thread.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def using(self, *names: str) -> Iterator[None]:
        with self._changed:
            while any(map(self._is_in_use, names)):
                self._changed.wait()
            self._names.update(names)
        try:
            yield
        finally:
            with self._changed:
                self._names.difference_update(names)
                self._changed.notify_all()

    def _is_in_use(self, name: str) -> bool:
        return any(
            name == other or name.startswith(other + "/") or other.startswith(name + "/")
            for other in self._names
        )
