"""Values that are not as typed: found one by one, so that a bad one takes no other with it."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

BadValues = dict[int, str]
Build = Callable[[list[Any]], pa.Array]


def reason(error: Exception) -> str:
    """Why a value is bad, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def one_by_one(
    values: list[bytes | None], read: Callable[[bytes], Any], build: Build
) -> tuple[pa.Array, BadValues]:
    """A column of what `read` makes of each value; what it or `build` refuses is null, and bad.

    Whatever a decoder raises, the record is what is bad: any other answer would let one record
    stop a query for ever. Only memory that ran out says nothing about the record.
    """
    bad: BadValues = {}
    out: list[Any] = []
    for row, value in enumerate(values):
        try:
            out.append(None if value is None else read(value))
        except MemoryError:
            raise
        except Exception as error:  # see above
            bad[row] = reason(error)
            out.append(None)
    unfit = dict(_unfit(out, build, 0, len(out)))
    for row in unfit:
        out[row] = None
    return build(out), dict(sorted({**bad, **unfit}.items()))


def _unfit(values: list[Any], build: Build, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The rows that cannot be built though they were read: a decimal too long, a time too early.

    By halves, since building one row at a time takes twenty times as long as all at once.
    """
    try:
        build(values[start:end])
    except MemoryError:
        raise
    except Exception as error:  # as above
        if end - start == 1:
            yield start, reason(error)
        else:
            middle = (start + end) // 2
            yield from _unfit(values, build, start, middle)
            yield from _unfit(values, build, middle, end)
