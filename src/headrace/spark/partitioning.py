"""Which partition a row goes to, for whole columns: the same choice as every Kafka client's."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.core.lookups import partition_error

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
# Rows without a key stay with a partition for so long before the next one has its turn.
_RUN_ROWS = 1_000


def murmur2_column(keys: pa.Array) -> Words:
    """The hash of every key, as `headrace.protocol.murmur2` has it; nulls are hashed as empty."""
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(data_buffer or b"", np.uint8).astype(np.uint32, copy=False)
    start, size = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashes = np.uint32(_SEED) ^ size.astype(np.uint32)
    whole, rows = size >> 2, np.arange(len(keys))
    for word in range(int(whole.max()) if len(keys) else 0):
        rows = rows[whole[rows] > word]
        at = start[rows] + 4 * word
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k *= _M
        k ^= k >> 24
        k *= _M
        hashes[rows] = hashes[rows] * _M ^ k
    _mix_tails(hashes, data, start + 4 * whole, size & 3)
    hashes ^= hashes >> 13
    hashes *= _M
    hashes ^= hashes >> 15
    return hashes


def _mix_tails(hashes: Words, data: Words, at: Ints, left: npt.NDArray[np.int32]) -> None:
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        hashes[rows] ^= data[at[rows] + byte] << np.uint32(8 * byte)
    rows = np.flatnonzero(left > 0)
    hashes[rows] *= _M


class Partitioner:
    """Places rows in the partitions of one topic; rows without a key take turns in runs."""

    def __init__(self, topic: str, count: int, first_turn: int = 0) -> None:
        self._topic = topic
        self.count = count
        self._turn = first_turn % count

    def assign(self, rows: int, keys: pa.Array | None, wanted: pa.Array | None) -> Ints:
        """The partition of every row: the one it asks for, its key's, or the next in turn."""
        placed = np.full(rows, -1, np.int64)
        if wanted is not None:
            placed = pc.fill_null(wanted, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            asked = wanted.is_valid().to_numpy(zero_copy_only=False)
            bad = asked & ((placed < 0) | (placed >= self.count))
            if bad.any():
                raise partition_error(self._topic, int(placed[bad.argmax()]), self.count)
        if self.count == 1:
            return np.zeros(rows, np.int64)
        if keys is not None and keys.null_count < rows:
            by_key = (murmur2_column(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % self.count
            keyed = keys.is_valid().to_numpy(zero_copy_only=False) & (placed < 0)
            placed = np.where(keyed, by_key, placed)
        free = np.flatnonzero(placed < 0)
        if len(free):
            placed[free] = self._turns(len(free))
        return placed

    def _turns(self, rows: int) -> Ints:
        run = max(_RUN_ROWS, -(-rows // self.count))
        turns = self._turn + np.arange(rows) // run
        self._turn = int(turns[-1] + 1) % self.count
        return turns % self.count
