"""Where each leader epoch began: what lets replicas and clients find the point of divergence.

The file is written without syncs: batches carry their epoch, so a table that was lost or is
older than the data is noticed (its last epoch is not that of the last batch) and rebuilt.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from headrace.core.files import FileSystem
from headrace.core.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from headrace.log.checkpoints import encode_table, read_table, replace_file
from headrace.log.names import LEADER_EPOCHS

EpochEntry = tuple[LeaderEpoch, Offset]

UNDEFINED: Final[EpochEntry] = (NO_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The table: epochs and their start offsets, both growing."""

    __slots__ = ("_entries", "changed", "latest")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: tuple[EpochEntry, ...] = tuple(entries)
        self.latest: LeaderEpoch = self._entries[-1][0] if self._entries else NO_EPOCH
        # Whether the file is behind.
        self.changed = False

    @classmethod
    def load(cls, files: FileSystem, directory: str) -> "LeaderEpochs | None":
        """What the file says; None if it is missing or makes no sense."""
        rows = read_table(files, f"{directory}/{LEADER_EPOCHS}", 2)
        if rows is None:
            return None
        try:
            entries = [(LeaderEpoch(int(epoch)), Offset(int(start))) for epoch, start in rows]
        except ValueError:
            return None
        if not all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries)):
            return None
        return cls(entries)

    def store(self, files: FileSystem, directory: str) -> None:
        # Unsynced on purpose, see above.
        path = f"{directory}/{LEADER_EPOCHS}"
        self.changed = False
        replace_file(files, path, encode_table(self._entries), durable=False)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def start_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        """`epoch` begins at `start`; epochs that then would have no offsets of their own go."""
        if epoch == self.latest:
            return
        kept = tuple(entry for entry in self._entries if entry[0] < epoch and entry[1] < start)
        self._replace((*kept, (epoch, start)))

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEntry:
        """The largest epoch not above `epoch`, and the offset at which it ended.

        Undefined for an epoch this log has not heard of; for one older than all it knows, the
        epoch itself and where the known ones begin.
        """
        if not self._entries or epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        if epoch < self._entries[0][0]:
            return epoch, self._entries[0][1]
        floor, end = self._entries[0][0], log_end
        for known, start in self._entries:
            if known > epoch:
                end = start
                break
            floor = known
        return floor, end

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which `offset` was written; -1 if it lies before all that is known."""
        found = NO_EPOCH
        for epoch, start in self._entries:
            if start > offset:
                break
            found = epoch
        return found

    def truncate_end(self, offset: Offset) -> None:
        """Forget epochs that begin at `offset` or later."""
        if self._entries and self._entries[-1][1] >= offset:
            self._replace(tuple(entry for entry in self._entries if entry[1] < offset))

    def truncate_start(self, offset: Offset) -> None:
        """Forget epochs that ended before `offset`; the one it lies in now begins there."""
        if not self._entries or self._entries[0][1] >= offset:
            return
        epoch = self.epoch_for_offset(offset)
        later = tuple(entry for entry in self._entries if entry[1] > offset)
        self._replace(((epoch, offset), *later))

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        self._entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
        self.changed = True
