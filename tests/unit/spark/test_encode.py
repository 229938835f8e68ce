"""Columns as record batches, compared with the decoder that everyone else uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.compression import Codec
from headrace.protocol.murmur2 import murmur2, partition_for_key
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import crc_matches, parse_header
from headrace.spark.encode import Rows, encode
from headrace.spark.partitioning import Partitioner, murmur2_column

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MIB = 1024 * 1024

payloads = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=70), "value": payloads}), max_size=3
)
rows = st.lists(
    st.tuples(payloads, payloads, headers, st.integers(0, 2**41), st.integers(0, 3)), min_size=1
)
Decoded = dict[int, list[tuple[Any, ...]]]


def columns(found: list[tuple[Any, ...]]) -> Rows:
    keys, values, lists, times, _ = zip(*found, strict=True)
    return Rows(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(lists, HEADERS),
        np.array(times, np.int64),
    )


def decoded(given: Rows, target: Any, **how: Any) -> Decoded:
    found: Decoded = {}
    for number, data in encode(given, np.array(target, np.int64), **how):
        header = parse_header(data)
        assert crc_matches(memoryview(data), 0, header)
        assert header.size == len(data)
        records = list(iterate_records(data))
        assert [each.offset for each in records] == list(range(header.record_count))
        assert header.max_timestamp == max(each.timestamp for each in records)
        found.setdefault(number, []).extend(
            (each.key, each.value, list(each.headers), each.timestamp) for each in records
        )
    return found


def expected(found: list[tuple[Any, ...]]) -> Decoded:
    wanted: Decoded = {}
    for key, value, pairs, time, target in found:
        told = [(each["key"], each["value"]) for each in pairs or []]
        wanted.setdefault(target, []).append((key, value, told, time))
    return wanted


@given(rows, st.sampled_from([200, 1000, MIB]), st.sampled_from(list(Codec)))
def test_what_is_encoded_by_columns_is_decoded_record_by_record(
    found: list[tuple[Any, ...]], bytes_max: int, codec: Codec
) -> None:
    targets = [each[4] for each in found]
    assert decoded(columns(found), targets, bytes_max=bytes_max, codec=codec) == expected(found)


def test_batches_stay_below_their_limit() -> None:
    values = pa.array([b"x" * 100] * 1000, pa.binary())
    given = Rows(values, None, None, np.zeros(1000, np.int64))
    sizes = [len(each.data) for each in encode(given, np.zeros(1000, np.int64), bytes_max=10_000)]
    assert max(sizes) <= 10_000 + 61
    assert len(sizes) < 20


def test_a_row_larger_than_the_limit_travels_alone() -> None:
    values = pa.array([b"a", b"x" * 5000, b"b"], pa.binary())
    given = Rows(values, None, None, np.zeros(3, np.int64))
    batches = [each.data for each in encode(given, np.zeros(3, np.int64), bytes_max=1000)]
    assert [parse_header(each).record_count for each in batches] == [1, 1, 1]


def test_slices_of_columns_are_encoded_from_where_they_begin() -> None:
    found = [(b"k%d" % n, b"v%d" % n, [{"key": str(n), "value": b"h"}], n, 0) for n in range(9)]
    whole = columns(found)
    part = Rows(
        whole.value.slice(4),
        whole.key.slice(4),  # type: ignore[union-attr]  # columns() always gives keys
        whole.headers.slice(4),  # type: ignore[union-attr]  # and headers
        whole.timestamp_ms[4:],
    )
    assert decoded(part, [0] * 5, bytes_max=MIB) == expected(found[4:])


def test_no_rows_make_no_batch() -> None:
    nothing = Rows(pa.array([], pa.binary()), None, None, np.zeros(0, np.int64))
    assert list(encode(nothing, np.zeros(0, np.int64), bytes_max=1000)) == []


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1), st.integers(0, 5))
def test_keys_are_hashed_as_every_client_hashes_them(keys: list[bytes | None], skip: int) -> None:
    column = pa.array(keys, pa.binary()).slice(min(skip, len(keys) - 1))
    assert murmur2_column(column).tolist() == [murmur2(key or b"") for key in column.to_pylist()]


def test_rows_go_where_they_ask_then_by_key_then_in_turns() -> None:
    keys = pa.array([b"a", b"a", None, None], pa.binary())
    asked = pa.array([3, None, 2, None], pa.int32())
    placed = Partitioner("t", 4, first_turn=1).assign(4, keys, asked).tolist()
    assert placed == [3, partition_for_key(b"a", 4), 2, 1]


def test_rows_without_a_key_are_spread_over_all_partitions() -> None:
    placed = Partitioner("t", 3).assign(9000, None, None)
    assert np.bincount(placed).tolist() == [3000, 3000, 3000]


def test_small_pieces_take_turns() -> None:
    partitioner = Partitioner("t", 3)
    turns = [set(partitioner.assign(10, None, None).tolist()) for _ in range(3)]
    assert turns == [{0}, {1}, {2}]


@pytest.mark.parametrize("count", [1, 2])
def test_a_partition_that_does_not_exist_is_refused(count: int) -> None:
    with pytest.raises(Exception, match=r"has .*partition.*not 7"):
        Partitioner("t", count).assign(2, None, pa.array([0, 7], pa.int32()))
