"""One segment of a log, searched and read by offset.

A lookup is a binary search in the sparse index and a short walk over batch headers. A reader
that follows the writer asks for the offset at which its last read ended; those positions are
cached, so such a read takes no lookup and no walk.
"""

from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.files import FileRange, FileSystem
from headrace.core.ids import NO_EPOCH, LeaderEpoch, Offset
from headrace.log.batch_scan import CHUNK_BYTES, scan_headers
from headrace.log.indexed_file import LAST, OFFSET, POSITION, IndexedFile
from headrace.protocol.records.header import HEADER_SIZE, parse_header

# How many positions of readers are cached; beyond that the oldest are evicted.
_READ_POSITIONS_MAX: Final = 32
_READ_POSITIONS_EVICTED: Final = 16

# Whole batches, and the offset behind the last of them.
LogSlice = tuple[FileRange | None, int]
EMPTY_SLICE: Final[LogSlice] = (None, 0)


class Segment(IndexedFile):
    """An indexed file that readers and the log look things up in."""

    __slots__ = ()

    @classmethod
    def existing(
        cls, files: FileSystem, directory: str, base_offset: int, next_offset: int
    ) -> "Segment":
        """A segment whose files are there and trusted; nothing but the size is looked at."""
        segment = cls(files, directory, base_offset)
        segment._end = (Offset(next_offset), files.size(segment.path()))
        segment._max_timestamp = None
        return segment

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that reaches `offset` or more; None if none does."""
        if offset >= self.next_offset:
            return None
        position = self.indexed_position(offset - self.base_offset)
        for found, header in scan_headers(self.file, position, self.size):
            if header.last_offset >= offset:
                return found
        return None

    def last_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last batch; -1 in an empty segment."""
        position = self.indexed_position(LAST) if self.size else 0
        epoch = NO_EPOCH
        if self.size:
            for _, header in scan_headers(self.file, position, self.size):
                epoch = LeaderEpoch(header.leader_epoch)
        return epoch

    def cache_position(self, offset: int, position: int) -> None:
        """A batch boundary that somebody is likely to read from or up to."""
        positions = self._read_positions
        if positions is None:
            positions = self._read_positions = {}
        elif len(positions) >= _READ_POSITIONS_MAX and offset not in positions:
            # A shorter copy takes its place: another thread may be adding to this one.
            newest = list(positions.copy().items())[_READ_POSITIONS_EVICTED:]
            positions = self._read_positions = dict(newest)
        positions[offset] = position

    def find(self, start: int, max_bytes: int, end: int, *, at_least_one: bool) -> LogSlice | None:
        """Whole batches from the one that holds `start`, all below `end`; None if none is left.

        At most `max_bytes`, or one batch if `at_least_one` asks for it and it is larger. The
        batches themselves are not read.
        """
        next_offset, size = self._end
        positions = self._read_positions or {}
        position = positions.get(start)
        if position is None:
            position = self.locate(start)
            if position is None:
                return None
        if position >= size:
            return None  # what compaction left ends here
        if end >= next_offset:
            end, stop = next_offset, size
        else:
            stop = positions.get(end, -1)
        if not 0 < stop - position <= max_bytes:
            stop, end = self._limit(position, max_bytes, end, size)
            if stop == position:
                if not at_least_one:
                    return EMPTY_SLICE
                header = parse_header(self.file.read(position, HEADER_SIZE))
                if header.last_offset >= end:
                    return EMPTY_SLICE
                stop, end = position + header.size, header.last_offset + 1
        self.cache_position(end, stop)
        return FileRange(self.file, position, stop - position), end

    def _limit(self, position: int, max_bytes: int, end: int, size: int) -> tuple[int, int]:
        """Where the last whole batch within `max_bytes` and below `end` ends, and the offset
        behind it; `position` and `end` if there is no such batch."""
        limit = min(position + max(max_bytes, 0), size)
        found, next_offset = position, end
        if limit - position > CHUNK_BYTES:
            found, next_offset = self._index_jump(position, limit, end)
        if limit - found < HEADER_SIZE:
            return found, next_offset
        try:
            for at, header in scan_headers(self.file, found, size):
                after = at + header.size
                if after > limit or header.last_offset >= end:
                    break
                found, next_offset = after, header.last_offset + 1
        except CorruptBatch:
            if found == position:
                raise
        return found, next_offset

    def _index_jump(self, position: int, limit: int, end: int) -> tuple[int, int]:
        """Where, by the index, the last indexed batch begins that lies below `end` and begins
        within `limit`, and its first offset; `position` and `end` if there is none."""
        index = self.offsets
        number = min(index.floor(limit, POSITION), index.floor(end - 1 - self.base_offset, OFFSET))
        if number >= 0:
            relative, found = index.entry(number)
            if position < found <= self.size - HEADER_SIZE:
                header = parse_header(self.file.read(found, HEADER_SIZE))
                if header.last_offset == self.base_offset + relative < end:
                    return found, header.base_offset
        return position, end
