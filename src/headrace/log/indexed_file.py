"""A data file of batches and two sparse indexes that point into it, kept in step.

    NNN.log         batches; the truth
    NNN.index       last offset of a batch, where it begins; one entry every few kilobytes
    NNN.timeindex   highest timestamp so far, last offset of its batch; one with each of those

An index that is missing or does not fit the data is made anew from it. One writer at a time;
readers may overlap the writer and only ever see whole batches, because `_end` moves, in one
step, only after the bytes are in the file.
"""

import logging
from typing import Final, Protocol, runtime_checkable

from headrace.core.errors import CorruptBatch
from headrace.core.files import File, FileSystem
from headrace.core.ids import Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.config import MAX_INT32
from headrace.log.names import INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, offset_name
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.protocol.records.header import HEADER_SIZE, parse_header

logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
# What entries of the offset index are looked up by, and what finds the last one.
OFFSET: Final = 0
POSITION: Final = 1
LAST: Final = 2**32


@runtime_checkable
class ReservesSpace(Protocol):
    """What a `File` of a real disk offers besides: space reserved, its size unchanged."""

    def reserve(self, size: int) -> None: ...


class IndexedFile:
    """The batches from `base_offset` up to, not including, `next_offset`."""

    __slots__ = (
        "_end",
        "_file",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_read_positions",
        "_times",
        "_unindexed_bytes",
        "base_offset",
        "closed_ms",
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
        # By the clock: of the first append (0 if another process made it), and of the last, known
        # once another segment is written to.
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        # Of the first batch; None until known. Rolling by time counts from it.
        self.first_timestamp: int | None = None
        # Next offset and size of the file; one object, so that readers see both move at once.
        self._end: tuple[Offset, int] = (self.base_offset, 0)
        self._file: File | None = None
        self._offsets: SparseIndex | None = None
        self._times: SparseIndex | None = None
        self._unindexed_bytes = 0
        # None until known; then the highest timestamp and the last offset of its batch.
        self._max_timestamp: int | None = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        # Offsets at which readers stopped, and where in the file that was.
        self._read_positions: dict[int, int] | None = None

    @property
    def next_offset(self) -> Offset:
        return self._end[0]

    @property
    def size(self) -> int:
        """Bytes of whole batches in the data file."""
        return self._end[1]

    # Files, opened on demand

    def path(self, suffix: str = LOG) -> str:
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

    def create_file(self, reserve_bytes: int = 0) -> None:
        """Create the data file, with disk space reserved where the file system can do that;
        leftovers of an earlier segment of this name go.

        If that fails there is no file: an empty one would pass for the log's end at a restart.
        """
        file = self.files.open(self.path(), create=True)
        try:
            if file.size():
                file.truncate(0)
            for suffix in (INDEX, TIME_INDEX):
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

    @property
    def offsets(self) -> SparseIndex:
        index = self._offsets
        if index is None:
            index = self._offsets = SparseIndex(self.files, self.path(INDEX), OFFSET_ENTRY)
        return index

    @property
    def times(self) -> SparseIndex:
        index = self._times
        if index is None:
            index = self._times = SparseIndex(self.files, self.path(TIME_INDEX), TIME_ENTRY)
        return index

    def _index(self, suffix: str) -> SparseIndex:
        return self.offsets if suffix == INDEX else self.times

    def release_space(self) -> None:
        """Give back what was reserved and not used."""
        self.file.truncate(self.size)

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
        """Take the files out of the log by a name that says so; return their new paths.

        They are opened first: an open file follows its name, so whoever reads here can finish.
        After an error it may be called again, and goes on where it was.
        """
        renamed: list[str] = []
        for part in SEGMENT_SUFFIXES:
            old = self.path(part)
            if self.files.exists(old):
                _ = self.file if part == LOG else self._index(part).open()
                self.files.rename(old, old + suffix)
            elif not self.files.exists(old + suffix):
                continue
            renamed.append(old + suffix)
        return renamed

    # Adding batches

    def add_batch(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Add a batch that is in the file at `position`, the end of what was known."""
        highest = self._max_timestamp
        if highest is None:
            highest = self._load_max_timestamp()
        if max_timestamp > highest:
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

    def entry_due(self, index_interval_bytes: int) -> bool:
        """Whether the next batch gets an index entry."""
        return self._unindexed_bytes > index_interval_bytes

    def _index_max_timestamp(self) -> None:
        last = self.times.last()
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.times.add(self.max_timestamp, self._max_timestamp_offset - self.base_offset)

    def persist_indexes(self, *, final: bool) -> None:
        """Write out index entries, if there are new ones.

        `final` adds the entry with the highest timestamp of the whole file.
        """
        if final and self.size and self._max_timestamp is not None:
            self._index_max_timestamp()
        if self.offsets.has_tail or self.times.has_tail:
            # Both, even if one has nothing new: Kafka's tools want both files.
            self.offsets.persist()
            self.times.persist()

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp in the segment; the time index's last entry knows it."""
        known = self._max_timestamp
        return self._load_max_timestamp() if known is None else known

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the highest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp_offset

    def _load_max_timestamp(self) -> int:
        last = self.times.last()
        if last is not None and self._time_index_reaches_the_end():
            self._set_max_timestamp(last[0], self.base_offset + last[1])
        elif self.size:
            self.rebuild_indexes("the time index is missing or does not fit")
        else:
            self._set_max_timestamp(NO_TIMESTAMP, self.base_offset)
        return NO_TIMESTAMP if self._max_timestamp is None else self._max_timestamp

    def _set_max_timestamp(self, timestamp: int | None, offset: int) -> None:
        # The offset first: whoever sees the timestamp takes both for known.
        self._max_timestamp_offset = offset
        self._max_timestamp = timestamp

    def _time_index_reaches_the_end(self) -> bool:
        """Whether the last time entry fits its batch and none of the last batches is later.

        Finds what was cut off in a file whose times grow, which is nearly every file.
        """
        times = self.times
        highest, relative = times.last() or (NO_TIMESTAMP, 0)
        if times.is_torn() or not self._time_entry_matches(highest, relative):
            return False
        position = self.indexed_position(LAST)
        try:
            tail = scan_headers(self.file, position, self.size)
            return all(header.max_timestamp <= highest for _, header in tail)
        except CorruptBatch:
            return False

    def load_first_timestamp(self) -> int:
        """Timestamp of the first batch, from the file if it is not yet known; -1 if none."""
        first = self.first_timestamp
        if first is None:
            if not self.size:
                return NO_TIMESTAMP
            header = parse_header(self.file.read(0, HEADER_SIZE))
            first = self.first_timestamp = header.max_timestamp
        return first

    # Indexes against data

    def matches_batch(self, relative: int, position: int) -> bool:
        """Whether a batch whose last offset is `relative` begins at `position`."""
        try:
            header = parse_header(self.file.read(position, HEADER_SIZE))
        except CorruptBatch:
            return False
        return header.last_offset == self.base_offset + relative

    def _time_entry_matches(self, timestamp: int, relative: int) -> bool:
        """Whether a time entry has the timestamp of a batch that ends at its offset."""
        position = self.indexed_position(relative)
        try:
            for _, header in scan_headers(self.file, position, self.size):
                if header.last_offset >= self.base_offset + relative:
                    end, highest = header.last_offset, header.max_timestamp
                    return (end, highest) == (self.base_offset + relative, timestamp)
        except CorruptBatch:
            pass
        return False

    def indexed_position(self, value: int, column: int = OFFSET) -> int:
        """Where a scan for `value` may begin: the position in the last offset entry not above it,
        checked against the batch it points to.

        If that is wrong the indexes are made anew; then the start of the file is a safe answer.
        """
        index = self.offsets
        number = index.floor(value, column)
        if number < 0:
            return 0
        entry = index.entry(number)
        if entry[column] <= value and self.matches_batch(*entry):
            return entry[1]
        if index is self._offsets:  # not made anew by another thread since we looked
            self.rebuild_indexes(f"offset entry {number} points to no batch of its offset")
        return 0

    def rebuild_indexes(self, reason: str, index_interval_bytes: int = 4096) -> None:
        """Make both indexes anew from the data file.

        Aside, and put in place when they are whole: others read here meanwhile.
        """
        logger.warning("rebuilding indexes: segment=%s reason=%s", self.path(), reason)
        fresh = IndexedFile(self.files, self.directory, self.base_offset)
        fresh._offsets, fresh._times = self.offsets.empty_copy(), self.times.empty_copy()
        try:
            for position, header in scan_headers(self.file, 0, self.size):
                fresh.add_batch(
                    position,
                    header.size,
                    header.last_offset,
                    header.max_timestamp,
                    index_interval_bytes,
                )
        except CorruptBatch as error:
            # It ends the index, not the segment: a torn tail that recovery has yet to cut, or
            # damage that the reader of that very batch will find.
            logger.warning("an index ends early: segment=%s reason=%s", self.path(), error)
        fresh._index_max_timestamp()
        self._offsets, self._times = fresh._offsets, fresh._times
        self._unindexed_bytes = fresh._unindexed_bytes
        self._set_max_timestamp(fresh._max_timestamp, fresh._max_timestamp_offset)
        self.offsets.persist()
        self.times.persist()

    def clear_indexes(self) -> None:
        """Empty both indexes, and what was derived from batches so far."""
        self.offsets.truncate(0)
        self.times.truncate(0)
        self._unindexed_bytes = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._read_positions = None

    # Going back

    def resume(self, index_interval_bytes: int) -> None:
        """Find the end of a cleanly closed segment; raises `CorruptBatch` if it is not whole."""
        size = self.size
        last = self.offsets.last()
        relative, position = last if last else (-1, 0)
        if last and (position >= size or not self.matches_batch(relative, position)):
            raise CorruptBatch(f"the index of {self.path()} does not fit its data")
        next_offset, indexable = int(self.base_offset), False
        highest, highest_offset = NO_TIMESTAMP, int(self.base_offset)
        for found, header in scan_headers(self.file, position, size):
            self._unindexed_bytes += header.size
            next_offset = header.last_offset + 1
            indexable = found > index_interval_bytes
            if header.max_timestamp > highest:
                highest, highest_offset = header.max_timestamp, header.last_offset
        self._end = (Offset(next_offset), size)
        if last is None:
            # Every batch was seen, so the time index can be judged; a stop does not sync it.
            time = (highest, highest_offset - self.base_offset) if highest >= 0 else None
            if indexable or self.times.last() != time:
                self.rebuild_indexes("an index is missing or does not fit", index_interval_bytes)
            self._max_timestamp, self._max_timestamp_offset = highest, highest_offset

    def rewind(self, offset: int) -> int:
        """Forget what is known of batches from `offset` on; return where to read on from.

        Index entries below it are kept if they grow and the last of them fits its batch.
        """
        offsets, times = self.offsets, self.times
        number = offsets.floor(offset - 1 - self.base_offset) if offset > self.base_offset else -1
        if number >= 0 and offsets.is_monotonic() and times.is_monotonic():
            relative, position = offsets.entry(number)
            in_time = times.floor(relative, 1)
            time = times.entry(in_time) if in_time >= 0 else None
            if time and self.matches_batch(relative, position) and self._time_entry_matches(*time):
                # Entry `number` itself goes too: its batch is read again and is added anew.
                offsets.truncate(number)
                times.truncate(in_time + 1)
                self._set_max_timestamp(time[0], self.base_offset + time[1])
                # Whoever wrote them may have died before they were synced.
                offsets.unsynced = times.unsynced = True
                self._unindexed_bytes = MAX_INT32
                self._end = (self.base_offset, position)
                return position
        self.clear_indexes()
        self._end = (self.base_offset, 0)
        return 0

    def end_before(self, position: int) -> Offset:
        """The offset behind the last batch before `position`, a batch boundary."""
        scan_from = self.indexed_position(position - 1, POSITION)
        end = self.base_offset
        for _, header in scan_headers(self.file, scan_from, position):
            end = Offset(header.last_offset + 1)
        return end

    def truncate(self, position: int) -> None:
        """Cut the data file at `position`, a batch boundary, and the indexes with it."""
        scan_from = self.indexed_position(position - 1, POSITION)
        next_offset = self.end_before(position)
        self._read_positions = None
        self._end = (next_offset, position)
        self.file.truncate(position)
        self.offsets.truncate(self.offsets.floor(position - 1, 1) + 1)
        self.times.truncate(self.times.floor(next_offset - 1 - self.base_offset, 1) + 1)
        self._unindexed_bytes = position - scan_from
        if position == 0:
            self.first_timestamp = None
        self._find_max_timestamp(scan_from)

    def _find_max_timestamp(self, scan_from: int) -> None:
        """The time index knows it up to the last offset entry; what follows is read again."""
        last = self.times.last()
        highest, relative = last if last else (NO_TIMESTAMP, 0)
        self._max_timestamp_offset = self.base_offset + relative
        for _, header in scan_headers(self.file, scan_from, self.size):
            if header.max_timestamp > highest:
                highest, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        self._max_timestamp = highest
