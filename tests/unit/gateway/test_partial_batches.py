"""Pages of a large batch: decoded as far as asked for, in turns, and never from the start again."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from headrace.client import TopicPartition
from headrace.client.core.fetched import whole_batches
from headrace.client.core.models import FetchedChunk
from headrace.core.errors import InvalidRecord
from headrace.gateway.partial_batches import PartialBatchCache
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_record, pack_batch

T = TypeVar("T")
WHERE = TopicPartition("orders", 0)


def batch(first: int, count: int, *, claimed: int | None = None) -> bytes:
    """A batch of `count` records at offset `first`; it may claim to hold more."""
    records = b"".join(encode_record(delta, 0, None, b"%d" % delta, ()) for delta in range(count))
    number = claimed or count
    sealed = pack_batch(
        records,
        attributes=0,
        last_offset_delta=number - 1,
        base_timestamp=0,
        max_timestamp=0,
        record_count=number,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    sealed[:8] = first.to_bytes(8, "big")
    return bytes(sealed)


def finish(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The result of a coroutine that waits for nothing, and how many turns it gave to others."""
    turns = 0
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value, turns
        turns += 1


def take(
    pages: PartialBatchCache, data: bytes, start: int, most: int
) -> tuple[list[Record], int, int]:
    """Records of a page, where to go on, and turns given."""
    batches, last = whole_batches(data)
    assert last is not None
    chunk = FetchedChunk(WHERE, start, batches, last + 1, last + 1, 0, [])
    (records, following), turns = finish(pages.decode(chunk, start, last, most))
    return records, following, turns


@pytest.mark.parametrize("size", [1, 7, 499, 500, 501, 5_000])
def test_pages_together_are_the_whole(size: int) -> None:
    data = batch(10, 1_200) + batch(1_300, 3) + batch(1_303, 900)
    pages = PartialBatchCache()
    found: list[int] = []
    position = 10
    while position < 2_203:
        records, following, _ = take(pages, data, position, size)
        assert 0 < len(records) <= size
        assert following > position
        found += [record.offset for record in records]
        position = following
    assert found == [*range(10, 1_210), *range(1_300, 2_203)]


def test_what_is_not_asked_for_is_not_decoded() -> None:
    data = batch(0, 1_000, claimed=1_005)
    pages = PartialBatchCache()
    records, following, _ = take(pages, data, 0, 10)
    assert ([record.offset for record in records], following) == (list(range(10)), 10)
    with pytest.raises(InvalidRecord):
        take(PartialBatchCache(), data, 0, 2_000)


def test_others_have_their_turn_while_a_large_batch_is_decoded() -> None:
    data = batch(0, 20_000)
    assert take(PartialBatchCache(), data, 0, 20_000)[2] >= 39
    records, _, turns = take(PartialBatchCache(), data, 19_999, 1)
    assert records[0].value == b"19999"
    assert turns >= 39


def test_the_next_page_goes_on_where_the_last_one_ended() -> None:
    data = batch(0, 20_000)
    pages = PartialBatchCache()
    position = take(pages, data, 19_000, 1)[1]
    while position < 20_000:
        records, following, turns = take(pages, data, position, 1)
        assert (records[0].offset, following, turns) == (position, position + 1, 0)
        position = following
    # From anywhere else the batch has to be gone through.
    assert take(pages, data, 15_000, 1)[2] >= 30


def test_another_batch_at_the_same_place_is_not_mistaken_for_the_one_kept() -> None:
    pages = PartialBatchCache()
    take(pages, batch(0, 10), 0, 2)
    other = batch(0, 11)
    records, _, _ = take(pages, other, 2, 20)
    assert [record.offset for record in records] == list(range(2, 11))


def test_what_is_kept_is_bounded() -> None:
    pages = PartialBatchCache()
    for first in range(0, 1_000, 10):
        take(pages, batch(first, 10), first, 5)
    assert len(pages._batches) <= 16
    large = batch(0, 1_000_000)
    for start in range(1, 9):
        take(pages, large, start, 1)
    assert 0 < pages._bytes <= 16 * 1024 * 1024


def test_no_records_leave_the_position_where_it_is() -> None:
    records, following, _ = take(PartialBatchCache(), batch(0, 10), 4, 0)
    assert (records, following) == ([], 4)
