"""Producer state and the snapshots of it that are on disk."""

from collections.abc import Sequence
from typing import Final

from headrace.core.files import FileSystem
from headrace.core.ids import Offset
from headrace.log.producer_snapshot import encode_snapshot, load_snapshot, snapshot_path
from headrace.log.producer_state import ProducerStates
from headrace.log.recovery import replay
from headrace.log.segment import Segment

_SMALL: Final = 500


class ProducerStateManager:
    """The states at the log's end, loaded when first needed, and earlier ones in files.

    Kept are the snapshots at the start of each segment (a truncation goes back to one of them)
    and the newest of all.
    """

    __slots__ = ("_directory", "_files", "snapshots", "states")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.states: ProducerStates | None = ProducerStates()
        self.snapshots: tuple[Offset, ...] = ()

    @property
    def is_small(self) -> bool:
        """Whether a snapshot is a matter of a millisecond, so that appends may wait for it."""
        return self.states is None or len(self.states) <= _SMALL

    def load(self, segments: Sequence[Segment], end: Offset) -> ProducerStates:
        """The states at `end`: the newest good snapshot before it, and what came since."""
        states: ProducerStates | None = None
        start = segments[0].base_offset
        while self.snapshots and states is None:
            offset = self.snapshots[-1]
            if offset <= end:
                states = load_snapshot(self._files, self._directory, offset)
            if states is None:
                self._remove((offset,))
            else:
                start = offset
        if states is None:
            states = ProducerStates()
        replay(states, segments, start, end)
        self.states = states
        return states

    def take_snapshot(self, offset: Offset) -> None:
        """Write down the states as of `offset`, the log's end, unless that has been done."""
        if self.states is None or (self.snapshots and self.snapshots[-1] == offset):
            return
        path = snapshot_path(self._directory, offset)
        self._files.write_file(path, encode_snapshot(self.states))
        self.snapshots = (*self.snapshots, offset)

    def covers(self, offset: Offset) -> bool:
        """Whether the newest snapshot knows everything below `offset`."""
        return bool(self.snapshots) and self.snapshots[-1] >= offset

    def sync_newest(self) -> None:
        """The newest snapshot's contents on disk; its name is for the caller to sync."""
        if self.snapshots:
            file = self._files.open(snapshot_path(self._directory, self.snapshots[-1]))
            try:
                file.sync()
            finally:
                file.close()

    def remove_stray_snapshots(self, bases: set[Offset]) -> None:
        """Keep the snapshots at the start of a segment and the newest."""
        self._remove([s for s in self.snapshots[:-1] if s not in bases])

    def truncate(self, offset: Offset) -> None:
        """The log was cut at `offset`: later snapshots go, the states are loaded anew."""
        self._remove([s for s in self.snapshots if s > offset])
        self.states = None

    def clear(self) -> None:
        self._remove(self.snapshots)
        self.states = ProducerStates()

    def delete_snapshots_before(self, offset: Offset) -> None:
        """Segments below `offset` are gone: so is the use of their snapshots, but the newest."""
        self._remove([s for s in self.snapshots[:-1] if s < offset])

    def _remove(self, offsets: Sequence[Offset]) -> None:
        for offset in offsets:
            path = snapshot_path(self._directory, offset)
            if self._files.exists(path):
                self._files.remove(path)
        gone = set(offsets)
        self.snapshots = tuple(s for s in self.snapshots if s not in gone)
