"""Which files are open, by name and by directory.

Every directory above an open file knows what is in it, so that renaming or removing one directory
costs what is open below it, and nothing for the thousands of others.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class HasPath(Protocol):
    @property
    def path(self) -> str: ...


F = TypeVar("F", bound=HasPath)


class OpenFiles(Generic[F]):
    """A file is registered under the path it has at that moment; whoever changes the path takes
    it out first. Not for several threads at once."""

    def __init__(self) -> None:
        self._by_path: dict[str, tuple[F, ...]] = {}
        # Paths of open files and of directories above them, by the directory that holds them.
        self._in_directory: dict[str, dict[str, None]] = {}

    def add(self, file: F) -> None:
        path = file.path
        self._by_path[path] = (*self._by_path.get(path, ()), file)
        while (parent := path.rpartition("/")[0]) != path:
            names = self._in_directory.setdefault(parent, {})
            if path in names:
                return
            names[path] = None
            path = parent

    def discard(self, file: F) -> None:
        path = file.path
        others = tuple(other for other in self._by_path.get(path, ()) if other is not file)
        if others:
            self._by_path[path] = others
            return
        self._by_path.pop(path, None)
        while path not in self._by_path and path not in self._in_directory:
            parent = path.rpartition("/")[0]
            names = self._in_directory.get(parent)
            if names is None or path not in names:
                return
            del names[path]
            if names:
                return
            del self._in_directory[parent]
            path = parent

    def at(self, path: str) -> tuple[F, ...]:
        """The open files of this very name."""
        return self._by_path.get(path, ())

    def below(self, directory: str) -> tuple[F, ...]:
        """The open files in a directory and in those below it."""
        return tuple(self._walk(directory))

    def _walk(self, directory: str) -> Iterator[F]:
        for path in self._in_directory.get(directory, ()):
            yield from self._by_path.get(path, ())
            yield from self._walk(path)

    def all(self) -> tuple[F, ...]:
        return tuple(file for files in self._by_path.values() for file in files)
