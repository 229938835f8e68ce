"""One stretch of a partition, found and read by offset.

A lookup is a binary search in the sparse index and a short walk over batch headers. A reader
that follows the writer asks for the offset at which its last read ended; those places are
remembered, so such a read is one `pread`, with no lookup and no walk.
"""

from struct import Struct
from typing import Final

from headrace.core.files import FileSystem
from headrace.core.ids import NO_EPOCH, LeaderEpoch, Offset
from headrace.log.batch_scan import scan_headers
from headrace.log.indexed_file import LAST, IndexedFile
from headrace.protocol.records.header import HEADER_SIZE, LENGTH_OVERHEAD, parse_header

# How many places readers may be remembered at; beyond that the oldest are forgotten.
_BOUNDARIES_MAX: Final = 32
_FORGOTTEN_AT_ONCE: Final = 16
# A cut inside what was read walks this many batches before it asks the index for a short cut.
_WALK_MAX: Final = 64

_base_and_length = Struct(">qi").unpack_from
_offset_delta = Struct(">i").unpack_from
_OFFSET_DELTA_AT: Final = 23

# Whole batches, and the offset behind the last of them.
Stretch = tuple[bytes | memoryview, int]
NOTHING: Final[Stretch] = (b"", 0)


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

    def remember(self, offset: int, position: int) -> None:
        """A batch boundary that somebody is likely to read from or up to."""
        boundaries = self._boundaries
        if boundaries is None:
            boundaries = self._boundaries = {}
        elif len(boundaries) >= _BOUNDARIES_MAX and offset not in boundaries:
            # A shorter copy takes its place: another thread may be adding to this one.
            newest = list(boundaries.copy().items())[_FORGOTTEN_AT_ONCE:]
            boundaries = self._boundaries = dict(newest)
        boundaries[offset] = position

    def read(self, start: int, max_bytes: int, end: int, *, at_least_one: bool) -> Stretch | None:
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
            end, stop = next_offset, size
        else:
            stop = boundaries.get(end, -1)
        if 0 < stop - position <= max_bytes:
            data = self.file.read(position, stop - position)
            self.remember(end, stop)
            return data, end
        return self._read_cut(position, max_bytes, end, size, at_least_one)

    def _read_cut(
        self, position: int, max_bytes: int, end: int, size: int, at_least_one: bool
    ) -> Stretch | None:
        """Read up to `max_bytes` and cut behind the last batch that is whole and below `end`."""
        if position >= size:
            return None
        data = self.file.read(position, min(max(max_bytes, 0), size - position))
        cut, next_offset = self._whole_batches(data, position, end)
        if cut:
            self.remember(next_offset, position + cut)
            return data if cut == len(data) else memoryview(data)[:cut], next_offset
        if not at_least_one:
            return NOTHING
        header = parse_header(self.file.read(position, HEADER_SIZE))
        if header.last_offset >= end:
            return NOTHING
        self.remember(header.last_offset + 1, position + header.size)
        return self.file.read(position, header.size), header.last_offset + 1

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
                cut, next_offset = max((cut, next_offset), self._short_cut(data, position, end))
        return cut, next_offset

    def _short_cut(self, data: bytes, position: int, end: int) -> tuple[int, Offset]:
        """Where, by the index, the last indexed batch within `data` and below `end` begins, and
        its first offset."""
        index = self.offsets
        number = min(
            index.floor(position + len(data) - HEADER_SIZE, 1),
            index.floor(end - 1 - self.base_offset, 0),
        )
        nowhere = (0, self.base_offset)
        if number < 0:
            return nowhere
        relative, found = index.entry(number)
        within = found - position
        if not 0 < within <= len(data) - HEADER_SIZE:
            return nowhere
        header = parse_header(data, within)
        fits = header.last_offset == self.base_offset + relative < end
        return (within, Offset(header.base_offset)) if fits else nowhere
