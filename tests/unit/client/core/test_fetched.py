"""Fetched batches: large ones are decoded piece by piece, as far as they are read."""

import pytest

from headrace.client.core.fetched import Cursor, decode_chunk, whole_batches
from headrace.client.core.models import FetchedChunk
from headrace.core.errors import InvalidRecord
from headrace.core.ids import TopicPartition
from headrace.protocol.records.encode import encode_record, pack_batch

WHERE = TopicPartition("orders", 0)


def chunk(count: int, claimed: int | None = None) -> FetchedChunk:
    """One batch of `count` records; it may claim to hold more."""
    records = b"".join(encode_record(delta, 0, None, b"v", ()) for delta in range(count))
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
    return FetchedChunk(WHERE, 0, whole_batches(sealed)[0], number, number, 0, [])


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 3_500])
@pytest.mark.parametrize("start", [0, 998, 2_000])
def test_pieces_together_are_the_batch(count: int, start: int) -> None:
    pieces = [records for _, records in decode_chunk(chunk(count), start, check_crc=True)]
    assert all(0 < len(piece) <= 1_000 for piece in pieces)
    assert [record.offset for piece in pieces for record in piece] == list(range(start, count))


def test_one_record_of_a_large_batch_is_read_without_decoding_the_rest() -> None:
    cursor = Cursor(WHERE)
    cursor.move(0)
    # Somebody who decodes all of it notices that records are missing.
    cursor.decoded = decode_chunk(chunk(5_000, claimed=5_001), 0, check_crc=True)
    assert cursor.has_record()
    assert [record.offset for record in cursor.take(1)] == [0]
    with pytest.raises(InvalidRecord):
        list(cursor.decoded)
