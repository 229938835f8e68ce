"""The sparse indexes that point into a segment's data file, kept in step with it.

    NNN.index       last offset of a batch, where it begins; one entry every few kilobytes
    NNN.timeindex   highest timestamp so far, last offset of its batch; one with each of those

An index that is missing or does not fit the data is made anew from it.
"""

import logging
from typing import Final

from headrace.core.errors import CorruptBatch
from headrace.log.batch_scan import scan_headers
from headrace.log.config import MAX_INT32
from headrace.log.data_file import DataFile
from headrace.log.names import INDEX, TIME_INDEX
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.protocol.records.header import HEADER_SIZE, parse_header

logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
# What entries of the offset index are looked up by, and what finds the last one.
OFFSET: Final = 0
POSITION: Final = 1
LAST: Final = 2**32


class SegmentIndexes:
    """Both indexes of one segment, and the highest timestamp in it."""

    __slots__ = (
        "_data",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_time_index",
        "_unindexed_bytes",
    )

    def __init__(self, data: DataFile) -> None:
        self._data = data
        self._offset_index: SparseIndex | None = None
        self._time_index: SparseIndex | None = None
        self._unindexed_bytes = 0
        # None until known; then the highest timestamp and the last offset of its batch.
        self._max_timestamp: int | None = NO_TIMESTAMP
        self._max_timestamp_offset: int = data.base_offset

    # Files, opened on demand

    @property
    def offset_index(self) -> SparseIndex:
        index = self._offset_index
        if index is None:
            data = self._data
            index = self._offset_index = SparseIndex(data.files, data.path(INDEX), OFFSET_ENTRY)
        return index

    @property
    def time_index(self) -> SparseIndex:
        index = self._time_index
        if index is None:
            data = self._data
            index = self._time_index = SparseIndex(data.files, data.path(TIME_INDEX), TIME_ENTRY)
        return index

    def open(self, suffix: str) -> None:
        """The file of the index with this suffix."""
        (self.offset_index if suffix == INDEX else self.time_index).open()

    def sync(self) -> None:
        self.offset_index.sync()
        self.time_index.sync()

    def close(self) -> None:
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()

    # Adding

    def add_batch(
        self, position: int, size: int, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """A batch is in the file at `position`, the end of what was known."""
        highest = self._max_timestamp
        if highest is None:
            highest = self._load_max_timestamp()
        if max_timestamp > highest:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._unindexed_bytes > interval_bytes:
            self.offset_index.add(last_offset - self._data.base_offset, position)
            self._index_max_timestamp()
            self._unindexed_bytes = size
        else:
            self._unindexed_bytes += size

    def entry_due(self, interval_bytes: int) -> bool:
        """Whether the next batch gets an index entry."""
        return self._unindexed_bytes > interval_bytes

    def _index_max_timestamp(self) -> None:
        last = self.time_index.last()
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            relative = self._max_timestamp_offset - self._data.base_offset
            self.time_index.add(self.max_timestamp, relative)

    def persist(self, *, final: bool) -> None:
        """Write out index entries, if there are new ones.

        `final` adds the entry with the highest timestamp of the whole file.
        """
        if final and self._data.size and self._max_timestamp is not None:
            self._index_max_timestamp()
        if self.offset_index.has_tail or self.time_index.has_tail:
            self._persist_both()

    def _persist_both(self) -> None:
        """Both, even if one has nothing new: Kafka's tools want both files."""
        self.offset_index.persist()
        self.time_index.persist()

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

    def forget_max_timestamp(self) -> None:
        """It is found in the files when it is first asked for."""
        self._max_timestamp = None

    def _load_max_timestamp(self) -> int:
        last = self.time_index.last()
        if last is not None and self._time_index_reaches_the_end():
            self._set_max_timestamp(last[0], self._data.base_offset + last[1])
        elif self._data.size:
            self.rebuild("the time index is missing or does not fit")
        else:
            self._set_max_timestamp(NO_TIMESTAMP, self._data.base_offset)
        return NO_TIMESTAMP if self._max_timestamp is None else self._max_timestamp

    def _set_max_timestamp(self, timestamp: int | None, offset: int) -> None:
        # The offset first: whoever sees the timestamp takes both for known.
        self._max_timestamp_offset = offset
        self._max_timestamp = timestamp

    def _time_index_reaches_the_end(self) -> bool:
        """Whether the last time entry fits its batch and none of the last batches is later.

        Finds what was cut off in a file whose times grow, which is nearly every file.
        """
        times = self.time_index
        highest, relative = times.last() or (NO_TIMESTAMP, 0)
        if times.is_torn() or not self._time_entry_matches(highest, relative):
            return False
        position = self.indexed_position(LAST)
        try:
            tail = scan_headers(self._data.file, position, self._data.size)
            return all(header.max_timestamp <= highest for _, header in tail)
        except CorruptBatch:
            return False

    # Indexes against data

    def _matches_batch(self, relative: int, position: int) -> bool:
        """Whether a batch whose last offset is `relative` begins at `position`."""
        try:
            header = parse_header(self._data.file.read(position, HEADER_SIZE))
        except CorruptBatch:
            return False
        return header.last_offset == self._data.base_offset + relative

    def _time_entry_matches(self, timestamp: int, relative: int) -> bool:
        """Whether a time entry has the timestamp of a batch that ends at its offset."""
        position, offset = self.indexed_position(relative), self._data.base_offset + relative
        try:
            for _, header in scan_headers(self._data.file, position, self._data.size):
                if header.last_offset >= offset:
                    return (header.last_offset, header.max_timestamp) == (offset, timestamp)
        except CorruptBatch:
            pass
        return False

    def indexed_position(self, value: int, column: int = OFFSET) -> int:
        """Where a scan for `value` may begin: the position in the last offset entry not above it,
        checked against the batch it points to.

        If that is wrong the indexes are made anew; then the start of the file is a safe answer.
        """
        index = self.offset_index
        number = index.floor(value, column)
        if number < 0:
            return 0
        entry = index.entry(number)
        if entry[column] <= value and self._matches_batch(*entry):
            return entry[1]
        if index is self._offset_index:  # not made anew by another thread since we looked
            self.rebuild(f"offset entry {number} points to no batch of its offset")
        return 0

    def rebuild(self, reason: str, interval_bytes: int = 4096) -> None:
        """Make both indexes anew from the data file.

        Aside, and put in place when they are whole: others read here meanwhile.
        """
        data = self._data
        logger.warning("rebuilding indexes: segment=%s reason=%s", data.path(), reason)
        fresh = SegmentIndexes(data)
        fresh._offset_index = self.offset_index.empty_copy()
        fresh._time_index = self.time_index.empty_copy()
        try:
            for position, header in scan_headers(data.file, 0, data.size):
                fresh.add_batch(
                    position, header.size, header.last_offset, header.max_timestamp, interval_bytes
                )
        except CorruptBatch as error:
            # It ends the index, not the segment: a torn tail that recovery has yet to cut, or
            # damage that the reader of that very batch will find.
            logger.warning("an index ends early: segment=%s reason=%s", data.path(), error)
        fresh._index_max_timestamp()
        self._offset_index, self._time_index = fresh._offset_index, fresh._time_index
        self._unindexed_bytes = fresh._unindexed_bytes
        self._set_max_timestamp(fresh._max_timestamp, fresh._max_timestamp_offset)
        self._persist_both()

    # Going back

    def resume(self, interval_bytes: int) -> int:
        """Find the end of a cleanly closed segment behind the last entry; raises `CorruptBatch` if
        data and indexes are not whole."""
        data, size = self._data, self._data.size
        last = self.offset_index.last()
        relative, position = last if last else (-1, 0)
        if last and (position >= size or not self._matches_batch(relative, position)):
            raise CorruptBatch(f"the index of {data.path()} does not fit its data")
        next_offset, indexable = int(data.base_offset), False
        highest, highest_offset = NO_TIMESTAMP, int(data.base_offset)
        for found, header in scan_headers(data.file, position, size):
            self._unindexed_bytes += header.size
            next_offset = header.last_offset + 1
            indexable = found > interval_bytes
            if header.max_timestamp > highest:
                highest, highest_offset = header.max_timestamp, header.last_offset
        if last is None:
            # Every batch was seen, so the time index can be judged; a stop does not sync it.
            time = (highest, highest_offset - data.base_offset) if highest >= 0 else None
            if indexable or self.time_index.last() != time:
                self.rebuild("an index is missing or does not fit", interval_bytes)
            self._max_timestamp, self._max_timestamp_offset = highest, highest_offset
        return next_offset

    def rewind(self, offset: int) -> int:
        """Forget what is known of batches from `offset` on; return where to read on from.

        Entries below it are kept if they grow and the last of them fits its batch.
        """
        offsets, times, base = self.offset_index, self.time_index, self._data.base_offset
        number = offsets.floor(offset - 1 - base) if offset > base else -1
        if number >= 0 and offsets.is_monotonic() and times.is_monotonic():
            relative, position = offsets.entry(number)
            in_time = times.floor(relative, 1)
            time = times.entry(in_time) if in_time >= 0 else None
            if time and self._matches_batch(relative, position) and self._time_entry_matches(*time):
                # Entry `number` itself goes too: its batch is read again and is added anew.
                offsets.truncate(number)
                times.truncate(in_time + 1)
                self._set_max_timestamp(time[0], base + time[1])
                # Whoever wrote them may have died before they were synced.
                offsets.unsynced = times.unsynced = True
                self._unindexed_bytes = MAX_INT32
                return position
        offsets.truncate(0)
        times.truncate(0)
        self._unindexed_bytes = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, base
        return 0

    def truncate(self) -> None:
        """The data file was cut where it ends now; the indexes follow."""
        next_offset, position = self._data.end
        scan_from = self.indexed_position(position - 1, POSITION)
        offsets, times = self.offset_index, self.time_index
        offsets.truncate(offsets.floor(position - 1, 1) + 1)
        times.truncate(times.floor(next_offset - 1 - self._data.base_offset, 1) + 1)
        self._unindexed_bytes = position - scan_from
        self._find_max_timestamp(scan_from)

    def _find_max_timestamp(self, scan_from: int) -> None:
        """The time index knows it up to the last offset entry; what follows is read again."""
        last = self.time_index.last()
        highest, relative = last if last else (NO_TIMESTAMP, 0)
        self._max_timestamp_offset = self._data.base_offset + relative
        for _, header in scan_headers(self._data.file, scan_from, self._data.size):
            if header.max_timestamp > highest:
                highest, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        self._max_timestamp = highest
