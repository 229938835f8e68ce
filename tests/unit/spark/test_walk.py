"""Where records end, found by runs or one by one: always the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidRecord
from headrace.spark import walk


def record(size: int) -> bytes:
    """A record of so many bytes behind its length, full of what looks like lengths."""
    n, out = size << 1, bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out) + (bytes(out) * size)[:size]


def batches(*given: list[int]) -> tuple[bytes, list[int], list[int], list[int], list[int]]:
    """Batches of records of these sizes: data, starts, ends, counts, and where each record ends."""
    data, starts, ends, counts, found = bytearray(), [], [], [], []
    for sizes in given:
        data += b"header"
        starts.append(len(data))
        for size in sizes:
            data += record(size)
            found.append(len(data))
        ends.append(len(data))
        counts.append(len(sizes))
    return bytes(data), starts, ends, counts, found


def ends_of(*given: list[int]) -> tuple[list[int], list[int]]:
    data, starts, ends, counts, expected = batches(*given)
    found = walk.record_ends(data, np.array(starts), np.array(ends), np.array(counts))
    return found.tolist(), expected


sizes = st.one_of(
    st.integers(0, 300),
    st.sampled_from([0, 63, 64, 100, 8191, 8192]),
)
runs = st.lists(st.tuples(sizes, st.integers(1, 40)), min_size=1, max_size=6).map(
    lambda parts: [size for size, count in parts for _ in range(count)]
)


@given(st.lists(runs, max_size=5))
def test_every_record_is_found(given: list[list[int]]) -> None:
    found, expected = ends_of(*given)
    assert found == expected


@pytest.mark.parametrize("size", [1, 62, 64, 110, 8190])
def test_runs_of_one_length_are_not_walked(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_walk", None)
    found, expected = ends_of([size] * 500, [size] * 64 + [size + 1] * 400, [size] * 200)
    assert found == expected


@pytest.mark.parametrize(("size", "other"), [(100, 1), (164, 64)])
def test_a_pair_that_makes_up_for_each_other_is_no_part_of_a_run(size: int, other: int) -> None:
    """The batch ends where it would with equal lengths; 100, 164 and 228 share a byte."""
    given = [size] * 20 + [size - other, size + other] + [size] * 20
    found, expected = ends_of(given, given)
    assert found == expected


def test_a_long_batch_beside_short_ones_takes_no_room_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walk, "_run", None)
    found, expected = ends_of([10] * 5_000, *([[10] * 20] * 50))
    assert found == expected


@pytest.mark.parametrize("count", [99, 101])
def test_a_batch_with_another_number_of_records_is_refused(count: int) -> None:
    data, starts, ends, _, _ = batches([100] * 100)
    with pytest.raises((InvalidRecord, IndexError)):
        walk.record_ends(data, np.array(starts), np.array(ends), np.array([count]))


def test_a_batch_that_is_cut_off_is_refused() -> None:
    data, starts, ends, counts, _ = batches([100] * 100)
    with pytest.raises((InvalidRecord, IndexError)):
        walk.record_ends(data[:-1], np.array(starts), np.array(ends) - 1, np.array(counts))
