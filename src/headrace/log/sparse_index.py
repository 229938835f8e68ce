"""A sorted list of pairs, most of it in a file: the common form of both indexes of a segment.

    offset index   (offset relative to the segment, position in the data file)   8 bytes
    time index     (highest timestamp so far, relative offset of its batch)     12 bytes

Both columns grow from entry to entry. New entries collect in memory (the tail) and go to the
file when the log is checkpointed, rolled or closed: an append then costs no second write, and a
crash loses nothing, since recovery re-reads the data behind the recovery point anyway. Lookups
read the file by binary search, so an index that is not written to costs no memory.

An entry read from the file is a hint until its reader has compared it with the batch it points
to; a wrong one makes the segment rebuild its indexes.
"""

from struct import Struct
from typing import Final

from headrace.core.files import File, FileSystem

OFFSET_ENTRY: Final = Struct(">II")
TIME_ENTRY: Final = Struct(">qI")

# Below this many entries a search reads them all at once instead of one by one.
_BLOCK: Final = 256

Pair = tuple[int, int]


class SparseIndex:
    """One index file and its tail.

    One writer at a time; readers may overlap it. They see one `_state`, which is replaced as a
    whole when the tail goes to the file, so that no entry is ever missing or seen twice.
    """

    __slots__ = ("_entry", "_file", "_files", "_state", "path", "unsynced")

    def __init__(self, files: FileSystem, path: str, entry: Struct) -> None:
        self.path = path
        self._files = files
        self._entry = entry
        self._file: File | None = None
        self._state: tuple[int, bytearray] | None = None
        # Whether the file may hold more or other entries than the disk below it.
        self.unsynced = False

    def _load(self) -> tuple[int, bytearray]:
        """How many entries the file has; a torn last one is left out (and written over)."""
        state = self._state
        if state is None:
            try:
                size = self._files.size(self.path)
            except FileNotFoundError:
                size = 0
            state = self._state = (size // self._entry.size, bytearray())
        return state

    def open(self) -> File:
        """The file, created if it is not there."""
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def empty_copy(self) -> "SparseIndex":
        """Another one of the same file, without entries; persisting it replaces what is there."""
        other = SparseIndex(self._files, self.path, self._entry)
        other._file = self.open()
        other._state = (0, bytearray())
        return other

    def __len__(self) -> int:
        written, tail = self._load()
        return written + len(tail) // self._entry.size

    def last(self) -> Pair | None:
        count = len(self)
        return self.entry(count - 1) if count else None

    def entry(self, number: int) -> Pair:
        return self._pair(self._load(), number)

    def _pair(self, state: tuple[int, bytearray], number: int) -> Pair:
        written, tail = state
        size = self._entry.size
        if number >= written:
            first, second = self._entry.unpack_from(tail, (number - written) * size)
        else:
            data = self.open().read(number * size, size)
            if len(data) < size:  # cut by somebody else; the reader's check will notice
                return 0, 0
            first, second = self._entry.unpack(data)
        return first, second

    def add(self, first: int, second: int) -> None:
        self._load()[1].extend(self._entry.pack(first, second))

    def floor(self, value: int, column: int = 0) -> int:
        """The number of the last entry whose `column` is at most `value`; -1 if there is none."""
        state = self._load()
        written, tail = state
        low, high = 0, written + len(tail) // self._entry.size
        if tail and self._pair(state, written)[column] <= value:
            low = written
        elif tail:
            high = written
        while high - low > 0:
            if high <= written and high - low <= _BLOCK:
                return self._floor_in_block(value, column, low, high)
            middle = (low + high) // 2
            if self._pair(state, middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _floor_in_block(self, value: int, column: int, low: int, high: int) -> int:
        size = self._entry.size
        data = self.open().read(low * size, (high - low) * size)
        for pair in self._entry.iter_unpack(data[: len(data) - len(data) % size]):
            if pair[column] > value:
                break
            low += 1
        return low - 1

    def persist(self) -> None:
        """Move the tail to the file; not synced."""
        written, tail = self._load()
        file = self.open()
        self.unsynced = True
        size = self._entry.size
        if file.size() != written * size:
            file.truncate(written * size)
        if tail:
            file.append((tail,))
            self._state = (written + len(tail) // size, bytearray())

    @property
    def has_tail(self) -> bool:
        return self._state is not None and len(self._state[1]) > 0

    def sync(self) -> None:
        if self.unsynced:
            self.open().sync()
            self.unsynced = False

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        written, tail = self._load()
        if count >= written:
            self._state = (written, tail[: (count - written) * self._entry.size])
            return
        self.unsynced = True
        self.open().truncate(count * self._entry.size)
        self._state = (count, bytearray())

    def is_torn(self) -> bool:
        """Whether the file ends in the middle of an entry."""
        return self.open().size() % self._entry.size != 0

    def is_monotonic(self) -> bool:
        """Whether both columns of the written part grow, as they must; reads all of it."""
        written, _ = self._load()
        data = self.open().read(0, written * self._entry.size) if written else b""
        previous: Pair = (-(2**63), -1)
        for first, second in self._entry.iter_unpack(data[: written * self._entry.size]):
            if first <= previous[0] or second <= previous[1]:
                return False
            previous = (first, second)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
