"""Where the records of batches end: the only thing that must be found one after the other.

Where neighbours are of one length, as records of fixed fields are, whole runs of them are found at
once: that the bytes of the length stand where the next record would begin proves the guess, record
by record. Others are walked in a tight loop, several times slower.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.core.errors import InvalidRecord
from headrace.protocol.records.decode import read_long_varint

Ints = npt.NDArray[np.int64]

# Shorter runs cost more to find than to walk.
_RUN_MIN: Final = 16
_PROBED_BATCHES: Final = 8
# Lengths of like records change where an offset or a time needs one more byte: a few times a batch.
_RUNS_MAX: Final = 6
# Batches lie side by side in a rectangle as long as the longest: not too much of it may be empty.
_WASTE_MAX: Final = 4


def record_ends(data: bytes, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """The end of every record of every batch, in order; raises where one does not fit its batch."""
    found = _by_runs(np.frombuffer(data, np.uint8), starts, counts)
    if found is not None and np.array_equal(found[np.cumsum(counts) - 1], ends):
        return found
    walked = _walk(data, starts.tolist(), ends.tolist(), counts.tolist())
    return np.array(walked, np.int64)


def _by_runs(raw: npt.NDArray[np.uint8], starts: Ints, counts: Ints) -> Ints | None:
    """The same by runs of equal lengths, batches side by side; None where that does not pay."""
    if not len(counts) or int(counts.min()) < _RUN_MIN:
        return None
    total = int(counts.sum())
    if int(counts.max()) * len(counts) > _WASTE_MAX * total:
        return None
    if not _pays(raw, starts[:_PROBED_BATCHES]):
        return None
    found = np.empty(total, np.int64)
    at, left, slot = starts.copy(), counts.copy(), np.cumsum(counts) - counts
    for _ in range(_RUNS_MAX):
        run = _run(raw, at, int(left.max()))
        if run is None:
            return None
        size, lengths = run
        lengths = np.minimum(lengths, left)
        steps = np.arange(1, int(lengths.max()) + 1)
        inside = steps <= lengths[:, None]
        found[(slot[:, None] + steps - 1)[inside]] = (at[:, None] + size[:, None] * steps)[inside]
        at, left, slot = at + size * lengths, left - lengths, slot + lengths
        going = left > 0
        if not going.any():
            return found
        at, left, slot = at[going], left[going], slot[going]
    return None


def _pays(raw: npt.NDArray[np.uint8], starts: Ints) -> bool:
    """Whether most of some batches begin with a run."""
    run = _run(raw, starts, _RUN_MIN)
    return run is not None and bool(np.median(run[1]) >= _RUN_MIN)


def _run(raw: npt.NDArray[np.uint8], at: Ints, longest: int) -> tuple[Ints, Ints] | None:
    """The bytes that a record takes at each place, and how many like it follow one another there.

    None where one is so long that its length takes more than two bytes, or is cut off.
    """
    last, longest = len(raw) - 2, max(longest, 2)
    if int(at.max()) > last:
        return None
    low, high = raw[at].astype(np.int64), raw[at + 1].astype(np.int64)
    two = low > 127
    if (two & (high > 127)).any():
        return None
    size = np.where(two, 2 + (((low & 127) | (high << 7)) >> 1), 1 + (low >> 1))
    behind = at[:, None] + size[:, None] * np.arange(1, longest)
    beyond = behind > last
    np.minimum(behind, last, out=behind)
    same: Any = raw[behind] == low[:, None]
    same &= (raw[behind + 1] == high[:, None]) | ~two[:, None]
    same &= ~beyond
    # How many at the front are the same; the one that the run begins with counts too.
    broken = ~same
    lengths = np.where(broken.any(axis=1), broken.argmax(axis=1), longest - 1) + 1
    return size, lengths


def _walk(data: bytes, starts: list[int], ends: list[int], counts: list[int]) -> list[int]:
    found: list[int] = []
    append = found.append
    for at, end, count in zip(starts, ends, counts, strict=True):
        for _ in range(count):
            n = data[at]
            if n < 128:
                at += 1 + (n >> 1)
            else:
                more = data[at + 1]
                if more < 128:
                    at += 2 + ((n + (more << 7) - 128) >> 1)
                else:
                    n, at = read_long_varint(data, at + 1, n)
                    at += n >> 1
            append(at)
        if at != end:
            raise InvalidRecord(f"{count} records end at {at}, their batch at {end}")
    return found
