"""Batches made of answers: large ones in parts, and nothing that wraps around."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.client import FetchedChunk, TopicPartition
from headrace.core.errors import InvalidRecord
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.spark import columns
from headrace.spark import rows as made
from headrace.spark.decode import decode
from headrace.spark.fetch import Fetched
from headrace.spark.options import Values

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", columns.HEADERS_TYPE),
    ]
)


def fetched(records: list[Record], each: int = 3) -> Fetched:
    batches = [
        encode_batch(records[at : at + each], codec=Codec.ZSTD)
        for at in range(0, len(records), each)
    ]
    data = memoryview(b"".join(batches))
    return Fetched([FetchedChunk(TopicPartition("t", 0), 0, data, 100, 100, 0)], [(0, 100)])


def some_records() -> list[Record]:
    return [
        Record(
            n, 0, None if n % 4 == 1 else b"k%d" % n, bytes([n]) * (n * 7 % 50), (("h", b"%d" % n),)
        )
        for n in range(20)
    ]


@pytest.mark.parametrize("bytes_max", [1, 60, 200])
def test_what_is_too_large_for_one_array_comes_in_parts(
    bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits stand for 2 GiB, beyond which positions in an array would wrap around."""
    whole = list(made.RowBuilder(SCHEMA, Values()).batches(fetched(some_records())))
    monkeypatch.setattr(made, "BYTES_PER_PART", bytes_max)
    monkeypatch.setattr(columns, "BINARY_BYTES_MAX", max(bytes_max, 100))
    parts = list(made.RowBuilder(SCHEMA, Values()).batches(fetched(some_records())))
    assert len(whole) == 1
    assert len(parts) > 3
    for part in parts:
        part.validate(full=True)
    assert [row for part in parts for row in part.to_pylist()] == whole[0].to_pylist()


def test_records_that_no_array_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = fetched(some_records())
    decoded = decode(answer.chunks, answer.bounds)
    monkeypatch.setattr(columns, "BINARY_BYTES_MAX", 100)
    with pytest.raises(InvalidRecord, match="too many for one column"):
        columns.binary(decoded.data, decoded.value)


@pytest.mark.parametrize("time_ms", [1_700_000_000_000_000_000, -(2**63), 2**63 - 1])
def test_a_time_that_no_timestamp_can_tell_is_refused(time_ms: int) -> None:
    with pytest.raises(InvalidRecord, match=rf"time is {time_ms} ms .* option 'columns'"):
        columns.timestamps(np.array([0, time_ms]))


def test_times_up_to_the_last_that_a_timestamp_can_tell_are_kept() -> None:
    ends = [-((2**63 - 1) // 1000), -1, (2**63 - 1) // 1000]
    found = columns.timestamps(np.array(ends)).cast(pa.int64()).to_pylist()
    assert found == [each * 1000 for each in ends]
