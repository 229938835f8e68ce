"""One segment of a log: a data file, the indexes that point into it, and where readers stopped.

    Segment ── data ............ the batches: `NNN.log`
            ── indexes ......... offset index and time index, kept in step with the data
            ── read_positions .. batch boundaries that readers are likely to ask for

A lookup is a binary search in the sparse index and a short walk over batch headers. A reader
that follows the writer asks for the offset at which its last read ended; those positions are
cached, so such a read takes no lookup and no walk.
"""

from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.files import File, FileRange, FileSystem
from headrace.core.ids import NO_EPOCH, LeaderEpoch, Offset
from headrace.log.batch_scan import CHUNK_BYTES, scan_headers
from headrace.log.data_file import DataFile
from headrace.log.names import INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX
from headrace.log.read_positions import ReadPositions
from headrace.log.segment_indexes import LAST, NO_TIMESTAMP, OFFSET, POSITION, SegmentIndexes
from headrace.protocol.records.header import HEADER_SIZE, parse_header

# Whole batches, and the offset behind the last of them.
LogSlice = tuple[FileRange | None, int]
EMPTY_SLICE: Final[LogSlice] = (None, 0)


class Segment:
    """The batches from `base_offset` up to, not including, `next_offset`.

    One writer at a time; readers may overlap it.
    """

    __slots__ = (
        "base_offset",
        "closed_ms",
        "created_ms",
        "data",
        "first_timestamp",
        "indexes",
        "read_positions",
    )

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, created_ms: int = 0
    ) -> None:
        self.base_offset = Offset(base_offset)
        self.data = DataFile(files, directory, base_offset)
        self.indexes = SegmentIndexes(self.data)
        self.read_positions = ReadPositions()
        # By the clock: of the first append (0 if another process made it), and of the last, known
        # once another segment is written to.
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        # Of the first batch; None until known. Rolling by time counts from it.
        self.first_timestamp: int | None = None

    @classmethod
    def existing(
        cls, files: FileSystem, directory: str, base_offset: int, next_offset: int
    ) -> "Segment":
        """A segment whose files are there and trusted; nothing but the size is looked at."""
        segment = cls(files, directory, base_offset)
        segment.data.end = (next_offset, files.size(segment.path()))
        segment.indexes.forget_max_timestamp()
        return segment

    @property
    def next_offset(self) -> Offset:
        return Offset(self.data.end[0])

    @property
    def size(self) -> int:
        """Bytes of whole batches in the data file."""
        return self.data.end[1]

    # Files

    def path(self, suffix: str = LOG) -> str:
        return self.data.path(suffix)

    @property
    def file(self) -> File:
        return self.data.file

    def create_file(self, reserve_bytes: int = 0) -> None:
        self.data.create((INDEX, TIME_INDEX), reserve_bytes)

    def close(self) -> None:
        self.data.close()
        self.indexes.close()

    def rename(self, suffix: str) -> list[str]:
        """Take the files out of the log by a name that says so; return their new paths.

        They are opened first: an open file follows its name, so whoever reads here can finish.
        After an error it may be called again, and goes on where it was.
        """
        files, renamed = self.data.files, list[str]()
        for part in SEGMENT_SUFFIXES:
            old = self.path(part)
            if files.exists(old):
                if part == LOG:
                    _ = self.data.file
                else:
                    self.indexes.open(part)
                files.rename(old, old + suffix)
            elif not files.exists(old + suffix):
                continue
            renamed.append(old + suffix)
        return renamed

    # Writing

    def add_batch(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Add a batch that is in the file at `position`, the end of what was known."""
        if position == 0:
            self.first_timestamp = max_timestamp
        self.indexes.add_batch(position, size, last_offset, max_timestamp, index_interval_bytes)
        # Last, so that a reader who sees the new end finds every byte before it.
        self.data.end = (last_offset + 1, position + size)

    def load_first_timestamp(self) -> int:
        """Timestamp of the first batch, from the file if it is not yet known; -1 if none."""
        first = self.first_timestamp
        if first is None:
            if not self.size:
                return NO_TIMESTAMP
            header = parse_header(self.file.read(0, HEADER_SIZE))
            first = self.first_timestamp = header.max_timestamp
        return first

    # Going back

    def resume(self, index_interval_bytes: int) -> None:
        """Find the end of a cleanly closed segment; raises `CorruptBatch` if it is not whole."""
        self.data.end = (self.indexes.resume(index_interval_bytes), self.size)

    def rewind(self, offset: int) -> int:
        """Forget what is known of batches from `offset` on; return where to read on from."""
        position = self.indexes.rewind(offset)
        self.read_positions.clear()
        self.data.end = (self.base_offset, position)
        return position

    def end_before(self, position: int) -> Offset:
        """The offset behind the last batch before `position`, a batch boundary."""
        scan_from = self.indexes.indexed_position(position - 1, POSITION)
        end = self.base_offset
        for _, header in scan_headers(self.file, scan_from, position):
            end = Offset(header.last_offset + 1)
        return end

    def truncate(self, position: int) -> None:
        """Cut the data file at `position`, a batch boundary, and the indexes with it."""
        next_offset = self.end_before(position)
        self.read_positions.clear()
        self.data.end = (next_offset, position)
        self.file.truncate(position)
        self.indexes.truncate()
        if position == 0:
            self.first_timestamp = None

    # Reading

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that reaches `offset` or more; None if none does."""
        if offset >= self.next_offset:
            return None
        position = self.indexes.indexed_position(offset - self.base_offset)
        for found, header in scan_headers(self.file, position, self.size):
            if header.last_offset >= offset:
                return found
        return None

    def last_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last batch; -1 in an empty segment."""
        position = self.indexes.indexed_position(LAST) if self.size else 0
        epoch = NO_EPOCH
        if self.size:
            for _, header in scan_headers(self.file, position, self.size):
                epoch = LeaderEpoch(header.leader_epoch)
        return epoch

    def find(self, start: int, max_bytes: int, end: int, *, at_least_one: bool) -> LogSlice | None:
        """Whole batches from the one that holds `start`, all below `end`; None if none is left.

        At most `max_bytes`, or one batch if `at_least_one` asks for it and it is larger. The
        batches themselves are not read.
        """
        data = self.data
        next_offset, size = data.end
        positions = self.read_positions.by_offset
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
        if end not in positions:
            self.read_positions.cache(end, stop)
        return FileRange(data.file, position, stop - position), end

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
        index = self.indexes.offset_index
        number = min(index.floor(limit, POSITION), index.floor(end - 1 - self.base_offset, OFFSET))
        if number >= 0:
            relative, found = index.entry(number)
            if position < found <= self.size - HEADER_SIZE:
                header = parse_header(self.file.read(found, HEADER_SIZE))
                if header.last_offset == self.base_offset + relative < end:
                    return found, header.base_offset
        return position, end
