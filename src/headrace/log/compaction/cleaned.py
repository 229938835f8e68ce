"""A new segment in the making, under names that end in `.cleaned`.

Same rules for the indexes as a live segment (`log.segment`). Nothing here is a segment to anyone
before `swap` gives it its name, so everything must be on disk by then: data is synced as it is
written, in small portions, to keep the flushes of the broker on the same disk short.
"""

from typing import Final

from headrace.core.files import Buffer, FileSystem
from headrace.log.names import CLEANED, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, offset_name
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.protocol.records.header import NO_TIMESTAMP

WRITE_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 4 << 20
_BUFFERS_MAX: Final = 512
"""Below the kernel's limit for one vectored write."""


def remove_cleaned(files: FileSystem, directory: str, base_offset: int) -> None:
    """Remove what an unfinished compaction left of a segment."""
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory}/{offset_name(base_offset, suffix)}{CLEANED}"
        if files.exists(path):
            files.remove(path)


class CleanedSegment:
    """Takes batches in order; `finish` makes it durable."""

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, index_interval_bytes: int
    ) -> None:
        remove_cleaned(files, directory, base_offset)
        path = f"{directory}/{offset_name(base_offset, '')}"
        self.base_offset = base_offset
        self.size = 0
        self._file = files.open(path + LOG + CLEANED, create=True)
        self._offsets = SparseIndex(files, path + INDEX + CLEANED, OFFSET_ENTRY)
        self._times = SparseIndex(files, path + TIME_INDEX + CLEANED, TIME_ENTRY)
        self._index_interval_bytes = index_interval_bytes
        self._unindexed_bytes = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._last_indexed_timestamp = NO_TIMESTAMP
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._unsynced_bytes = 0

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        size = len(batch)
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self._offsets.add(last_offset - self.base_offset, self.size)
            self._index_timestamp()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self.size += size
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= WRITE_BYTES or len(self._waiting) >= _BUFFERS_MAX:
            self._write()

    def _index_timestamp(self) -> None:
        if self._max_timestamp > self._last_indexed_timestamp:
            self._times.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
            self._last_indexed_timestamp = self._max_timestamp

    def _write(self) -> None:
        if self._waiting:
            self._file.append(self._waiting)
            self._unsynced_bytes += self._waiting_bytes
            self._waiting, self._waiting_bytes = [], 0
            if self._unsynced_bytes >= SYNC_BYTES:
                self._file.sync()
                self._unsynced_bytes = 0

    def finish(self) -> None:
        """Everything written and synced; the directory entries are for the caller to sync."""
        self._write()
        if self.size:
            self._index_timestamp()
        self._file.sync()
        for index in (self._offsets, self._times):
            index.persist()
            index.sync()
        self.close()

    def close(self) -> None:
        for part in (self._file, self._offsets, self._times):
            part.close()
