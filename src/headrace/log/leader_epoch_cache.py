"""The leader epochs of one log, found when they are first needed.

The file says them, unless it is older than the data; then the batches do.
"""

import logging
from collections.abc import Sequence

from headrace.core.errors import CorruptBatch
from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.segment import Segment

logger = logging.getLogger(__name__)


class LeaderEpochCache:
    """`table` is None until it is loaded; a new log has an empty one."""

    __slots__ = ("_directory", "_files", "table")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.table: LeaderEpochs | None = LeaderEpochs()

    def load(self, segments: Sequence[Segment], log_start: Offset, log_end: Offset) -> LeaderEpochs:
        table = LeaderEpochs.load(self._files, self._directory)
        if table is None or table.latest < segments[-1].last_epoch():
            logger.warning("rebuilding leader epochs: directory=%s", self._directory)
            table = LeaderEpochs()
            add_epochs(table, segments, log_end)
        table.truncate_end(log_end)
        table.truncate_start(log_start)
        self.table = table
        return table

    @property
    def changed(self) -> bool:
        """Whether the file is behind."""
        return self.table is not None and self.table.changed

    def store(self) -> None:
        """Write the file anew; not synced."""
        if self.table is not None:
            self.table.store(self._files, self._directory)

    def clear(self) -> None:
        """The log was emptied; the file still says what was."""
        self.table = LeaderEpochs()
        self.table.changed = True


def add_epochs(table: LeaderEpochs, segments: Sequence[Segment], end: int) -> None:
    """Learn every epoch from the batches below `end`."""
    for segment in segments:
        try:
            for _, header in scan_headers(segment.file, 0, segment.file.size()):
                if header.base_offset >= end:
                    break
                if header.leader_epoch > table.latest:
                    table.start_epoch(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        except CorruptBatch:
            continue
