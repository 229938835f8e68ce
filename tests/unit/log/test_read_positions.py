"""Places in a segment that readers are remembered at."""

import sys
import threading
from collections.abc import Iterator

import pytest

from headrace.log.segment import Segment
from tests.support.logs import simulated_disk


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_only_so_many_places_are_remembered_and_the_newest_is_one_of_them() -> None:
    segment = Segment(simulated_disk(), "/data/orders-0", 0)
    for offset in range(500):
        segment.cache_position(offset, offset * 10)
        assert segment._read_positions is not None
        assert segment._read_positions[offset] == offset * 10
        assert len(segment._read_positions) <= 32


@pytest.mark.usefixtures("restless_threads")
def test_a_flush_and_a_reader_may_both_remember_a_place() -> None:
    segment = Segment(simulated_disk(), "/data/orders-0", 0)
    failures: list[BaseException] = []

    def remember(first: int) -> None:
        try:
            for offset in range(first, 400_000, 3):
                segment.cache_position(offset, offset)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=remember, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
