"""The batches of a segment: `NNN.log`. It is the truth; all else can be made anew from it.

One writer at a time. Readers may overlap the writer and only ever see whole batches, because `end`
moves, in one step, only after the bytes are in the file.
"""

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headrace.core.files import File, FileSystem
from headrace.core.ids import Offset
from headrace.log.names import LOG, offset_name

logger = logging.getLogger(__name__)


@runtime_checkable
class ReservesSpace(Protocol):
    """What a `File` of a real disk offers besides: space reserved, its size unchanged."""

    def reserve(self, size: int) -> None: ...


class DataFile:
    """The file of batches from `base_offset` on, opened when it is first needed."""

    __slots__ = ("_file", "base_offset", "directory", "end", "files")

    def __init__(self, files: FileSystem, directory: str, base_offset: int) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = Offset(base_offset)
        # The offset behind the last whole batch, and where that one ends in the file; one object,
        # so that readers see both move at once.
        self.end: tuple[int, int] = (self.base_offset, 0)
        self._file: File | None = None

    @property
    def size(self) -> int:
        """Bytes of whole batches."""
        return self.end[1]

    def path(self, suffix: str = LOG) -> str:
        """Of this file, or of one that goes with it."""
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    @property
    def exists(self) -> bool:
        return self._file is not None or self.files.exists(self.path())

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.files.open(self.path())
        return file

    def create(self, companions: Sequence[str], reserve_bytes: int = 0) -> None:
        """Create the file, with disk space reserved where the file system can do that; what an
        earlier segment of this name has left goes: its batches, and files with `companions` for
        a suffix.

        If that fails there is no file: an empty one would pass for the log's end at a restart.
        """
        file = self.files.open(self.path(), create=True)
        try:
            if file.size():
                file.truncate(0)
            for suffix in companions:
                if self.files.exists(self.path(suffix)):
                    self.files.remove(self.path(suffix))
        except OSError:
            file.close()
            self.files.remove(self.path())
            raise
        self._file = file
        if reserve_bytes and isinstance(file, ReservesSpace):
            try:
                file.reserve(reserve_bytes)
            except OSError as error:
                # Batches that fit into what is left are still welcome.
                logger.warning("no space set aside: segment=%s reason=%s", self.path(), error)

    def release_space(self) -> None:
        """Give back what was reserved and not used."""
        self.file.truncate(self.size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
