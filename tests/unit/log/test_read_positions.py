"""Where readers stopped: a bounded number of positions, from several threads."""

import sys
import threading
from collections.abc import Iterator

import pytest

from headrace.log.read_positions import POSITIONS_MAX, ReadPositions


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_only_so_many_places_are_remembered_and_the_newest_is_one_of_them() -> None:
    positions = ReadPositions()
    for offset in range(500):
        positions.cache(offset, offset * 10)
        assert positions.by_offset[offset] == offset * 10
        assert len(positions.by_offset) <= POSITIONS_MAX


@pytest.mark.usefixtures("restless_threads")
def test_a_flush_and_a_reader_may_both_remember_a_place() -> None:
    positions = ReadPositions()
    failures: list[BaseException] = []

    def remember(first: int) -> None:
        try:
            for offset in range(first, 400_000, 3):
                positions.cache(offset, offset)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=remember, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
