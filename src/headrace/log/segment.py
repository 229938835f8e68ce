"""One stretch of a partition: a data file, and two sparse indexes that point into it.

The data file is the truth; an index that is missing or does not fit it is rebuilt from it. One
writer at a time; readers may overlap the writer and only ever see whole batches, because `_end`
moves, in one step, only after the bytes are in the file.

A reader that follows the writer asks for the offset at which its last read ended. Those places
are remembered (`_boundaries`), so such a read is one `pread`, with no lookup and no scan.
"""

import logging
from struct import Struct
from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.core.files import Buffer, File, FileSystem
from headrace.core.ids import NO_EPOCH, LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.config import MAX_INT32
from headrace.log.names import INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, offset_name
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.protocol.records.header import HEADER_SIZE, LENGTH_OVERHEAD, parse_header

logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
# How many places readers may be remembered at; beyond that the oldest is forgotten.
_BOUNDARIES_MAX: Final = 32
# A cut inside what was read walks this many batches before it asks the index for a short cut.
_WALK_MAX: Final = 64

_base_and_length = Struct(">qi").unpack_from
_offset_delta = Struct(">i").unpack_from
_OFFSET_DELTA_AT: Final = 23


class Segment:
    """The batches from `base_offset` up to, not including, `next_offset`."""

    __slots__ = (
        "_boundaries",
        "_end",
        "_file",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_times",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
    )

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, created_ms: int = 0
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = Offset(base_offset)
        # Next offset and size of the file; one object, so that readers see both move at once.
        self._end: tuple[Offset, int] = (Offset(base_offset), 0)
        self.created_ms = created_ms
        # Of the first batch; None until known. Rolling by time counts from it.
        self.first_timestamp: int | None = None
        self._file: File | None = None
        self._offsets: SparseIndex | None = None
        self._times: SparseIndex | None = None
        self._unindexed_bytes = 0
        # None until known; then the highest timestamp and the last offset of its batch.
        self._max_timestamp: int | None = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._boundaries: dict[int, int] | None = None

    @classmethod
    def existing(
        cls, files: FileSystem, directory: str, base_offset: int, next_offset: int
    ) -> "Segment":
        """A segment whose files are there and trusted; nothing but the size is looked at."""
        segment = cls(files, directory, base_offset)
        segment._end = (Offset(next_offset), files.size(segment.path()))
        segment._max_timestamp = None
        return segment

    @property
    def next_offset(self) -> Offset:
        return self._end[0]

    @property
    def size(self) -> int:
        """Bytes of whole batches in the data file."""
        return self._end[1]

    # Files and indexes, opened on demand

    def path(self, suffix: str = LOG) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    @property
    def exists(self) -> bool:
        return self._file is not None or self.files.exists(self.path())

    @property
    def indexed(self) -> bool:
        """Whether the next batch gets an index entry or one was made before."""
        return self._offsets is not None

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.files.open(self.path())
        return file

    def create_file(self) -> None:
        """Create the data file; leftovers of an earlier segment of this name go."""
        self._file = self.files.open(self.path(), create=True)
        if self._file.size():
            self._file.truncate(0)
        for suffix in (INDEX, TIME_INDEX):
            if self.files.exists(self.path(suffix)):
                self.files.remove(self.path(suffix))

    @property
    def offsets(self) -> SparseIndex:
        """Last offset of a batch (relative) to the batch's position."""
        index = self._offsets
        if index is None:
            index = self._offsets = SparseIndex(self.files, self.path(INDEX), OFFSET_ENTRY)
        return index

    @property
    def times(self) -> SparseIndex:
        """Highest timestamp so far to the last offset (relative) of the batch that has it."""
        index = self._times
        if index is None:
            index = self._times = SparseIndex(self.files, self.path(TIME_INDEX), TIME_ENTRY)
        return index

    # Writing

    def append(
        self,
        buffer: Buffer,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch, whose offsets are already in place, at the end."""
        file = self._file
        if file is None:
            file = self.file
        position = file.append((buffer,))
        self.account(position, len(buffer), last_offset, max_timestamp, index_interval_bytes)

    def account(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Take note of a batch that is in the file at `position`, the end of what was known."""
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed_bytes > index_interval_bytes:
            self.offsets.add(last_offset - self.base_offset, position)
            self._index_max_timestamp()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        # Last, so that a reader who sees the new end finds every byte before it.
        self._end = (Offset(last_offset + 1), position + size)

    def _index_max_timestamp(self) -> None:
        last = self.times.last()
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.times.add(self.max_timestamp, self._max_timestamp_offset - self.base_offset)

    def persist_indexes(self, *, final: bool) -> None:
        """Write out index entries; `final` adds the one that tells the highest timestamp."""
        if final and self.size:
            self._index_max_timestamp()
        if final or self.offsets.has_tail:
            self.offsets.persist()
        if final or self.times.has_tail:
            self.times.persist()

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp in the segment; the time index's last entry knows it."""
        known = self._max_timestamp
        if known is None:
            known = self._load_max_timestamp()
        return known

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the highest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    def _load_max_timestamp(self) -> int:
        last = self.times.last()
        if last is not None:
            self._max_timestamp, relative = last
            self._max_timestamp_offset = self.base_offset + relative
        elif self.size:
            self.rebuild_indexes("the time index is missing")
        else:
            self._max_timestamp = NO_TIMESTAMP
        return NO_TIMESTAMP if self._max_timestamp is None else self._max_timestamp

    def load_first_timestamp(self) -> int:
        """Timestamp of the first batch, from the file if it is not yet known."""
        if self.first_timestamp is None:
            self.first_timestamp = parse_header(self.file.read(0, HEADER_SIZE)).max_timestamp
        return self.first_timestamp

    # Finding

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that reaches `offset` or more; None if none does."""
        if offset >= self.next_offset:
            return None
        number = self.offsets.floor(offset - self.base_offset)
        position = self.indexed_position(number) if number >= 0 else 0
        for found, header in scan_headers(self.file, position, self.size):
            if header.last_offset >= offset:
                return found
        return None

    def indexed_position(self, number: int) -> int:
        """The position in entry `number`, checked against the batch it points to.

        After a rebuild the entry may be another one, so the answer is then simply the start.
        """
        relative, position = self.offsets.entry(number)
        if self._fits(relative, position):
            return position
        self.rebuild_indexes(f"offset entry {number} points to no batch of its offset")
        return 0

    def rebuild_indexes(self, reason: str, index_interval_bytes: int = 4096) -> None:
        """Make both indexes anew from the data file."""
        logger.warning("rebuilding indexes: segment=%s reason=%s", self.path(), reason)
        end = self._end
        self.forget_indexes()
        try:
            for position, header in scan_headers(self.file, 0, end[1]):
                self.account(
                    position,
                    header.size,
                    header.last_offset,
                    header.max_timestamp,
                    index_interval_bytes,
                )
        finally:
            # A batch that cannot be walked over ends the index, not the segment.
            self._end = end
        self.persist_indexes(final=True)

    def forget_indexes(self) -> None:
        """Empty both indexes, and what was derived from batches so far."""
        self.offsets.truncate(0)
        self.times.truncate(0)
        self._unindexed_bytes = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._boundaries = None

    def resume(self, index_interval_bytes: int) -> None:
        """Find the end of a cleanly closed segment; raises `CorruptBatch` if it is not whole."""
        size = self.size
        last = self.offsets.last()
        relative, position = last if last else (-1, 0)
        if last and (position >= size or not self._fits(relative, position)):
            raise CorruptBatch(f"the index of {self.path()} does not fit its data")
        next_offset, indexable = int(self.base_offset), False
        for found, header in scan_headers(self.file, position, size):
            self._unindexed_bytes += header.size
            next_offset = header.last_offset + 1
            indexable = found > index_interval_bytes
        self._end = (Offset(next_offset), size)
        if last is None and indexable:
            self.rebuild_indexes("the offset index is missing", index_interval_bytes)

    def last_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last batch; -1 in an empty segment."""
        last = self.offsets.last()
        epoch = NO_EPOCH
        for _, header in scan_headers(self.file, last[1] if last else 0, self.size):
            epoch = LeaderEpoch(header.leader_epoch)
        return epoch

    def rewind(self, offset: int) -> int:
        """Forget what is known of batches from `offset` on; return where to read on from.

        Index entries below it are kept if they grow and the last of them fits its batch.
        """
        offsets, times = self.offsets, self.times
        number = offsets.floor(offset - 1 - self.base_offset) if offset > self.base_offset else -1
        if number >= 0 and offsets.grows() and times.grows():
            relative, position = offsets.entry(number)
            in_time = times.floor(relative, 1)
            if in_time >= 0 and self._fits(relative, position):
                # Entry `number` itself goes too: its batch is read again and may be added anew.
                offsets.truncate(number)
                times.truncate(in_time + 1)
                self._max_timestamp, last = times.entry(in_time)
                self._max_timestamp_offset = self.base_offset + last
                self._unindexed_bytes = MAX_INT32
                self._end = (Offset(self.base_offset), position)
                return position
        self.forget_indexes()
        self._end = (self.base_offset, 0)
        return 0

    def _fits(self, relative: int, position: int) -> bool:
        """Whether a batch whose last offset is `relative` begins at `position`."""
        try:
            header = parse_header(self.file.read(position, HEADER_SIZE))
        except CorruptBatch:
            return False
        return header.last_offset == self.base_offset + relative

    def remember(self, offset: int, position: int) -> None:
        """A batch boundary that somebody is likely to read from or up to."""
        boundaries = self._boundaries
        if boundaries is None:
            boundaries = self._boundaries = {}
        elif len(boundaries) >= _BOUNDARIES_MAX and offset not in boundaries:
            # pop with a default: two threads may be here at once.
            boundaries.pop(next(iter(boundaries)), None)
        boundaries[offset] = position

    # Reading

    def read(
        self, start: int, max_bytes: int, end: int, *, at_least_one: bool
    ) -> bytes | memoryview | None:
        """Whole batches from the one that holds `start`, all below `end`; None if none is left.

        At most `max_bytes`, or one batch if `at_least_one` asks for it and it is larger.
        """
        next_offset, size = self._end
        boundaries = self._boundaries or {}
        position = boundaries.get(start)
        if position is None:
            position = self.locate(start)
            if position is None:
                return None
        if end >= next_offset:
            stop: int | None = size
            end = next_offset
        else:
            stop = boundaries.get(end)
        if stop is not None and 0 < stop - position <= max_bytes:
            data = self.file.read(position, stop - position)
            self.remember(end, stop)
            return data
        return self._read_cut(position, max_bytes, end, size, at_least_one)

    def _read_cut(
        self, position: int, max_bytes: int, end: int, size: int, at_least_one: bool
    ) -> bytes | memoryview:
        """Read up to `max_bytes` and cut behind the last batch that is whole and below `end`."""
        data = self.file.read(position, min(max(max_bytes, 0), size - position))
        cut, next_offset = self._whole_batches(data, position, end)
        if cut:
            self.remember(next_offset, position + cut)
            return data if cut == len(data) else memoryview(data)[:cut]
        if not at_least_one:
            return b""
        header = parse_header(self.file.read(position, HEADER_SIZE))
        if header.last_offset >= end:
            return b""
        self.remember(header.last_offset + 1, position + header.size)
        return self.file.read(position, header.size)

    def _whole_batches(self, data: bytes, position: int, end: int) -> tuple[int, int]:
        """Where the last whole batch below `end` ends within `data`, and the offset after it."""
        cut, next_offset = 0, self.base_offset
        length = len(data)
        walked = 0
        while length - cut >= HEADER_SIZE:
            base_offset, batch_length = _base_and_length(data, cut)
            last_offset = base_offset + _offset_delta(data, cut + _OFFSET_DELTA_AT)[0]
            after = cut + batch_length + LENGTH_OVERHEAD
            if after > length or last_offset >= end or after <= cut:
                break
            cut, next_offset = after, Offset(last_offset + 1)
            walked += 1
            if walked == _WALK_MAX:
                cut = max(cut, self._short_cut(data, position, end))
        return cut, next_offset

    def _short_cut(self, data: bytes, position: int, end: int) -> int:
        """Where, by the index, the last indexed batch within `data` and below `end` begins."""
        index = self.offsets
        number = min(
            index.floor(position + len(data), 1), index.floor(end - 1 - self.base_offset, 0)
        )
        if number < 0:
            return 0
        relative, found = index.entry(number)
        within = found - position
        if within < 0 or within + HEADER_SIZE > len(data):
            return 0
        return (
            within if parse_header(data, within).last_offset == self.base_offset + relative else 0
        )

    # Cutting and going

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the data file at `position`, a batch boundary, and the indexes with it."""
        self._end = (Offset(next_offset), position)
        self._boundaries = None
        self.file.truncate(position)
        relative = next_offset - self.base_offset
        self.offsets.truncate(self.offsets.floor(position - 1, 1) + 1)
        self.times.truncate(self.times.floor(relative - 1, 1) + 1)
        self._unindexed_bytes = 0
        if position == 0:
            self.first_timestamp = None
        self._settle_after_cut()

    def _settle_after_cut(self) -> None:
        """Find the highest timestamp and the bytes since the last entry of what is left."""
        last = self.times.last()
        self._max_timestamp, relative = last if last else (NO_TIMESTAMP, 0)
        self._max_timestamp_offset = self.base_offset + relative
        count = len(self.offsets)
        position = self.indexed_position(count - 1) if count else 0
        # The time index is a step behind: what came after its last entry is read again.
        for _, header in scan_headers(self.file, position, self.size):
            if header.max_timestamp > (self._max_timestamp or 0):
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
            self._unindexed_bytes += header.size

    def sync(self) -> None:
        self.file.sync()

    def sync_indexes(self) -> None:
        self.offsets.sync()
        self.times.sync()

    def close(self) -> None:
        for part in (self._file, self._offsets, self._times):
            if part is not None:
                part.close()

    def rename(self, suffix: str) -> list[str]:
        """Take the files out of the log by a name that says so; return their new paths."""
        renamed: list[str] = []
        for part in SEGMENT_SUFFIXES:
            old = self.path(part)
            if self.files.exists(old):
                self.files.rename(old, old + suffix)
                renamed.append(old + suffix)
        return renamed
