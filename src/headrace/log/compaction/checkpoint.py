"""`cleaner-offset-checkpoint`: up to where each partition of a data directory is compacted.

A missing or damaged file only means that everything counts as dirty, so it is not synced.
"""

from collections.abc import Iterable
from typing import Final

from headrace.core.files import FileSystem
from headrace.core.ids import Offset, TopicPartition
from headrace.log.checkpoints import encode_offsets, read_offsets, replace_file

CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"


class CleanerCheckpoint:
    """First dirty offset of each partition; unknown ones are dirty from the start."""

    def __init__(self, files: FileSystem, data_directory: str) -> None:
        self._files = files
        self._path = f"{data_directory}/{CLEANER_OFFSETS}"
        self._offsets = read_offsets(files, self._path)

    def first_dirty_offset(self, partition: TopicPartition, log_start: int, log_end: int) -> int:
        """Where compaction has yet to look; an offset outside the log is not believed."""
        offset = self._offsets.get(partition, Offset(log_start))
        return offset if log_start <= offset <= log_end else log_start

    def update(self, partition: TopicPartition, offset: int) -> None:
        """Everything below `offset` is compacted now."""
        self._offsets[partition] = Offset(offset)
        self._write()

    def retain(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget every partition but these."""
        known = set(partitions)
        kept = {tp: offset for tp, offset in self._offsets.items() if tp in known}
        if len(kept) != len(self._offsets):
            self._offsets = kept
            self._write()

    def _write(self) -> None:
        replace_file(self._files, self._path, encode_offsets(self._offsets), durable=False)
