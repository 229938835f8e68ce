"""Which record is the newest of its key: exactly, for any number of keys, in bounded memory.

Records are numbered in log order. The map keeps key -> number of its newest record, by whole
keys, never by hashes alone: a collision must not cost anybody's data. When it has grown to its
share of memory it is spilled to a scratch file, split by hash into buckets (a *run*), and
starts anew:

    run 1   [bucket 0][bucket 1] ... [bucket n]        older
    run 2   [bucket 0][bucket 1] ... [bucket n]        newer, wins

In the end each bucket is put together from all its runs, oldest first, which fits in memory
because it is a small part of the keys. What comes out is one bit per record.
"""

import marshal
from typing import Final

from headrace.core.files import File, FileSystem

KEY_OVERHEAD_BYTES: Final = 150
"""Memory per key in a dict of bytes to int, besides the key's own bytes: measured, rounded up."""
_LARGE_KEY: Final = 1024
_BUCKETS_MIN: Final = 16
_BUCKETS_MAX: Final = 4096
# Version 2 writes every object out; later ones look for repeated objects, which costs time.
_MARSHAL_VERSION: Final = 2
_WRITE_BYTES: Final = 1 << 20


class Survivors:
    """One bit per record: set for those that stay."""

    __slots__ = ("_bits",)

    def __init__(self, record_count: int) -> None:
        self._bits = bytearray((record_count >> 3) + 1)

    def mark(self, newest: dict[bytes, int]) -> None:
        bits = self._bits
        for number in newest.values():
            bits[number >> 3] |= 1 << (number & 7)

    def of(self, first: int, count: int) -> int:
        """The bits of `count` records from `first` on, the first one lowest."""
        taken = self._bits[first >> 3 : (first + count + 7) >> 3]
        return int.from_bytes(taken, "little") >> (first & 7) & ((1 << count) - 1)


class KeyMap:
    """Takes keys in log order; gives the survivors at the end. Close it to remove its file."""

    def __init__(
        self, files: FileSystem, scratch_path: str, memory_bytes: int, bytes_expected: int
    ) -> None:
        if memory_bytes < 1:
            # Nothing could be looked at, so nothing would be found to be worth keeping.
            raise ValueError(f"a map of keys cannot be kept in {memory_bytes} bytes")
        self._files = files
        self._scratch_path = scratch_path
        self._scratch: File | None = None
        self._memory_bytes = memory_bytes
        self._bytes_expected = bytes_expected
        self._newest: dict[bytes, int] = {}
        self._key_bytes = 0
        # For each bucket: position, size and number of keys of its part in each run.
        self._buckets: list[list[tuple[int, int, int]]] = []

    def add(self, keys: list[bytes], first: int) -> None:
        """Records `first`, `first + 1`, … have these keys, and are newer than all before."""
        newest = self._newest
        before = len(newest)
        newest.update(zip(keys, range(first, first + len(keys)), strict=True))
        grown = len(newest) - before
        if grown:
            total = sum(map(len, keys))
            if total < _LARGE_KEY * len(keys):
                total = total * grown // len(keys)
            self._key_bytes += total

    def spill_if_full(self, bytes_seen: int) -> None:
        """Spill if the map has its share of memory; `bytes_seen` of the log are done."""
        memory = len(self._newest) * KEY_OVERHEAD_BYTES + self._key_bytes
        if memory > self._memory_bytes:
            if not self._buckets:
                # Buckets of a quarter of our share, if the rest of the log is like this part.
                expected = memory * self._bytes_expected // max(bytes_seen, 1)
                count = _BUCKETS_MIN
                while count < _BUCKETS_MAX and expected // count > self._memory_bytes // 4:
                    count *= 2
                self._buckets = [[] for _ in range(count)]
            self._spill()

    def _spill(self) -> None:
        mask = len(self._buckets) - 1
        # Flat lists, key after number after key: marshal takes three times as long over tuples.
        parts: list[list[bytes | int]] = [[] for _ in self._buckets]
        extend = [part.extend for part in parts]
        for item in self._newest.items():
            extend[hash(item[0]) & mask](item)
        self._newest.clear()
        self._key_bytes = 0
        if self._scratch is None:
            self._scratch = self._files.open(self._scratch_path, create=True)
        waiting: list[bytes] = []
        waiting_bytes = 0
        position = self._scratch.size()
        for bucket, part in zip(self._buckets, parts, strict=True):
            blob = marshal.dumps(part, _MARSHAL_VERSION)
            bucket.append((position, len(blob), len(part) // 2))
            part.clear()
            waiting.append(blob)
            position += len(blob)
            waiting_bytes += len(blob)
            if waiting_bytes >= _WRITE_BYTES:
                self._scratch.append(waiting)
                waiting, waiting_bytes = [], 0
        if waiting:
            self._scratch.append(waiting)

    def survivors(self, record_count: int) -> Survivors:
        """The newest record of every key among the `record_count` seen; the map is then empty."""
        survivors = Survivors(record_count)
        if self._buckets:
            self._spill()
            for bucket in self._buckets:
                self._resolve(bucket, survivors)
        else:
            survivors.mark(self._newest)
            self._newest.clear()
        return survivors

    def _resolve(self, runs: list[tuple[int, int, int]], survivors: Survivors) -> None:
        assert self._scratch is not None
        size = sum(blob_bytes for _, blob_bytes, _ in runs)
        memory = size + KEY_OVERHEAD_BYTES * sum(count for _, _, count in runs)
        # Usually 1; more when the first part of the log promised fewer keys than came.
        turns = memory // self._memory_bytes + 1
        for turn in range(turns):
            newest: dict[bytes, int] = {}
            for position, blob_bytes, _ in runs:
                flat = marshal.loads(self._scratch.read(position, blob_bytes))
                items = zip(flat[::2], flat[1::2], strict=True)
                if turns == 1:
                    newest.update(items)
                else:
                    newest.update(i for i in items if (hash(i[0]) >> 12) % turns == turn)
            survivors.mark(newest)

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._files.remove(self._scratch_path)
            self._scratch = None
