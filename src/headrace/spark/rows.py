"""Record batches for Spark: the columns that were asked for, with the types it expects."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client import FetchedChunk
from headrace.spark import columns
from headrace.spark.bad_values import BadValues
from headrace.spark.decode import Decoded, decode, rows
from headrace.spark.fetch import Fetched
from headrace.spark.options import ERROR, HEADERS, LATE_BEFORE, RAW, Values
from headrace.spark.typed import value_reader

# Larger Arrow batches make nothing faster, and each is in memory several times.
ROWS_PER_BATCH_MAX = 65_536
# An answer may be a hundred times as large once it is decompressed: columns are made of parts of
# it, whose bytes Arrow can count and memory holds several times.
BYTES_PER_PART = 256 * 1024 * 1024
BadRecords = Callable[[Decoded, list[FetchedChunk], BadValues], None]


class RowBuilder:
    """Turns fetched chunks into record batches; `bad` takes records whose value is not as typed."""

    def __init__(
        self,
        schema: pa.Schema,
        values: Values,
        bad: BadRecords | None = None,
        late_before_ms: int | None = None,
    ) -> None:
        self._schema = schema
        self._bad = bad
        self._late_before_ms = late_before_ms
        self._wanted = set(schema.names)
        # Bad values must be found for the dead letters even where nobody looks at the good ones.
        needs_values = not self._wanted.isdisjoint({"value", ERROR, RAW}) or bad is not None
        kind = schema.field("value").type if "value" in self._wanted else None
        self._read_values = value_reader(values, kind) if needs_values else None

    def batches(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Zero or more batches with the records of some chunks, in their order."""
        decoded = decode(fetched.chunks, fetched.bounds)
        for part in _parts(decoded, BYTES_PER_PART):
            batch = self._batch(part, list(fetched.chunks))
            for start in range(0, batch.num_rows, ROWS_PER_BATCH_MAX):
                yield batch.slice(start, ROWS_PER_BATCH_MAX)

    def _batch(self, decoded: Decoded, chunks: list[FetchedChunk]) -> pa.RecordBatch:
        made: dict[str, Any] = {}
        if self._read_values is not None:
            raw = columns.binary(decoded.data, decoded.value)
            typed, bad = self._read_values(raw)
            if bad and self._bad is not None:
                self._bad(decoded, chunks, bad)
                good = np.ones(len(decoded), np.bool_)
                good[list(bad)] = False
                decoded, typed, bad = rows(decoded, good), typed.filter(pa.array(good)), {}
            made["value"] = typed
            if ERROR in self._wanted:
                made[ERROR] = _sparse(len(decoded), bad, pa.string())
            if RAW in self._wanted:
                made[RAW] = _sparse(
                    len(decoded), {each: raw[each].as_py() for each in bad}, pa.binary()
                )
        arrays = [
            made[name] if name in made else self._column(name, decoded, chunks)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, decoded: Decoded, chunks: list[FetchedChunk]) -> pa.Array:
        if name == "key":
            return columns.binary(decoded.data, decoded.key)
        if name == "topic":
            return columns.names([each.partition.topic for each in chunks], decoded.chunk)
        if name == "partition":
            numbers = np.array([each.partition.partition for each in chunks], np.int32)
            return pa.array(numbers[decoded.chunk])
        if name == "offset":
            return pa.array(decoded.offset)
        if name == "timestamp":
            return columns.timestamps(decoded.timestamp_ms)
        if name == "timestampType":
            return pa.array(decoded.timestamp_type)
        if name == LATE_BEFORE:
            return columns.moment(self._late_before_ms, len(decoded))
        assert name == HEADERS, name
        return columns.headers(decoded)


def _parts(decoded: Decoded, bytes_max: int) -> Iterator[Decoded]:
    """The rows in parts of at most so many bytes, but for a row that alone has more."""
    if len(decoded.data) <= bytes_max:
        if len(decoded):
            yield decoded
        return
    first, low = 0, 0
    while first < len(decoded):
        last = max(int(np.searchsorted(decoded.end, low + bytes_max, "right")), first + 1)
        yield rows(decoded, slice(first, last))
        first, low = last, int(decoded.end[last - 1])


def _sparse(count: int, values: dict[int, Any], kind: pa.DataType) -> pa.Array:
    """A column that is null but for a few rows."""
    if not values:
        return pa.nulls(count, kind)
    return pa.array([values.get(row) for row in range(count)], kind)
