"""What one flush brings to disk: the only part of it that waits, in whatever thread.

Jobs of one log may overlap (a checkpoint flushes too): each lists everything that was not on disk
when it began, so each is right alone, and they take turns at the disk.
"""

import errno
import threading
from collections.abc import Sequence
from typing import Final

from headrace.core.files import File, FileSystem, NotTried
from headrace.core.ids import Offset
from headrace.log import partition_metadata
from headrace.log.segment import Segment

_NAMES: Final = "names"


class SyncGuard:
    """One job of a log at the disk at a time; what failed for one is not believed of the next.

    For those who hold `lock`.
    """

    __slots__ = ("_failed", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._failed: dict[object, OSError] = {}

    def require_sound(self, synced: object) -> None:
        """Raises `OSError` if an earlier sync of this has failed."""
        if synced in self._failed:
            raise OSError(errno.EIO, f"an earlier sync failed: {self._failed[synced]}")

    def note(self, synced: object, error: OSError) -> None:
        """What its sync has raised."""
        if not isinstance(error, NotTried):
            self._failed[synced] = error


class FlushJob:
    """A fixed list of what one flush syncs. `sync` may run in any thread."""

    __slots__ = (
        "_files",
        "_guard",
        "_has_topic_id",
        "began_ms",
        "data",
        "directory",
        "failed",
        "is_new",
        "names",
        "offset",
        "truncations",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        guard: SyncGuard,
        data: Sequence[tuple[Segment, File]],
        *,
        offset: Offset,
        names: int | None,
        is_new: bool,
        has_topic_id: bool,
        truncations: int,
        began_ms: float,
    ) -> None:
        self._files = files
        self._guard = guard
        self._has_topic_id = has_topic_id
        self.directory = directory
        self.data = data
        # Everything before it is on disk once the job is done.
        self.offset = offset
        # How often names in the directory had changed; None if all of them are on disk.
        self.names = names
        # The directory itself may be gone after a power cut.
        self.is_new = is_new
        self.truncations = truncations
        self.began_ms = began_ms
        self.failed: list[tuple[Segment, OSError]] = []

    def sync(self) -> None:
        """Raises `OSError`. Data files that fail are in `failed` instead: they may be of segments
        that were deleted meanwhile, and nobody waits for their bytes any more."""
        guard = self._guard
        with guard.lock:
            for segment, file in self.data:
                try:
                    guard.require_sound(file)
                    file.sync()
                except OSError as error:
                    guard.note(file, error)
                    self.failed.append((segment, error))
            if self.is_new or self.names is not None:
                try:
                    guard.require_sound(_NAMES)
                    self._sync_names()
                except OSError as error:
                    guard.note(_NAMES, error)
                    raise

    def _sync_names(self) -> None:
        if self.is_new:
            if self._has_topic_id:
                partition_metadata.sync(self._files, self.directory)
            self._files.sync_directory(self.directory.rpartition("/")[0])
        if self.names is not None:
            # A synced file whose name is lost is lost.
            self._files.sync_directory(self.directory)
