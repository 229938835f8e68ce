"""Sorted pairs in a file and a tail in memory, searched as one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from tests.support.logs import simulated_disk

PATH = "/00000000000000000000.index"


def offset_index() -> SparseIndex:
    return SparseIndex(simulated_disk(), PATH, OFFSET_ENTRY)


def test_an_empty_index_has_no_floor_and_no_last_entry() -> None:
    index = offset_index()
    assert len(index) == 0
    assert index.last() is None
    assert index.floor(10**6) == -1


@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=700),
    persisted=st.integers(0, 700),
    wanted=st.integers(-1, 7000),
    column=st.integers(0, 1),
)
def test_a_search_finds_the_last_entry_not_above(
    steps: list[tuple[int, int]], persisted: int, wanted: int, column: int
) -> None:
    index = offset_index()
    pairs: list[tuple[int, int]] = []
    first = second = 0
    for number, (a, b) in enumerate(steps):
        first, second = first + a, second + b
        pairs.append((first, second))
        index.add(first, second)
        if number == persisted:
            index.persist()
    expected = sum(1 for pair in pairs if pair[column] <= wanted) - 1
    assert index.floor(wanted, column) == expected
    assert [index.entry(n) for n in range(len(index))] == pairs


def test_entries_survive_in_the_file_in_kafkas_layout() -> None:
    disk = simulated_disk()
    index = SparseIndex(disk, PATH, TIME_ENTRY)
    index.add(1000, 5)
    index.add(2000, 9)
    index.persist()
    index.add(3000, 11)
    expected = bytes.fromhex("00000000000003e800000005" + "00000000000007d000000009")
    assert disk.read_file(PATH) == expected
    assert len(SparseIndex(disk, PATH, TIME_ENTRY)) == 2


def test_a_torn_last_entry_is_written_over() -> None:
    disk = simulated_disk()
    disk.write_file(PATH, OFFSET_ENTRY.pack(1, 10) + b"\x00\x00\x07")
    index = SparseIndex(disk, PATH, OFFSET_ENTRY)
    assert index.last() == (1, 10)
    index.add(2, 20)
    index.persist()
    assert disk.read_file(PATH) == OFFSET_ENTRY.pack(1, 10) + OFFSET_ENTRY.pack(2, 20)


def test_truncation_reaches_into_the_tail_and_into_the_file() -> None:
    index = offset_index()
    for number in range(4):
        index.add(number, number)
        if number == 1:
            index.persist()
    index.truncate(3)
    assert index.last() == (2, 2)
    index.truncate(1)
    assert index.last() == (0, 0)
    assert len(index) == 1


def test_entries_that_do_not_grow_are_noticed() -> None:
    disk = simulated_disk()
    disk.write_file(PATH, OFFSET_ENTRY.pack(5, 10) + bytes(8))
    assert not SparseIndex(disk, PATH, OFFSET_ENTRY).is_monotonic()
    disk.write_file(PATH, OFFSET_ENTRY.pack(5, 10) + OFFSET_ENTRY.pack(6, 20))
    assert SparseIndex(disk, PATH, OFFSET_ENTRY).is_monotonic()
