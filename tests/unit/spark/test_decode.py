"""The decoder by example: what must be hidden, what must be refused, what foreign clients write."""

from __future__ import annotations

import cramjam
import pytest

from headrace.client import FetchedChunk, TopicPartition
from headrace.core.errors import CorruptBatch, InvalidRecord
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import (
    ControlType,
    encode_batch,
    encode_control_batch,
    encode_record,
    pack_batch,
)
from headrace.spark import columns
from headrace.spark.decode import decode

PRODUCER = 7


def chunk(*batches: bytes | bytearray, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedChunk:
    data = memoryview(b"".join(batches))
    return FetchedChunk(TopicPartition("t", 0), 0, data, 100, 100, 0, aborted)


def offsets(fetched: FetchedChunk, low: int = 0, high: int = 100) -> list[int]:
    return [int(each) for each in decode([fetched], [(low, high)]).offset]


def transactional(offset: int, producer: int = PRODUCER) -> bytearray:
    return encode_batch([Record(offset, 0, None, b"v")], producer_id=producer, transactional=True)


def marker(offset: int, kind: ControlType, producer: int = PRODUCER) -> bytearray:
    return encode_control_batch(
        [(kind, b"\0" * 6)],
        base_offset=offset,
        leader_epoch=0,
        timestamp=0,
        producer_id=producer,
        transactional=True,
    )


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    fetched = chunk(
        transactional(0),
        transactional(1, producer=8),
        marker(2, ControlType.ABORT),
        transactional(3),
        marker(4, ControlType.COMMIT),
        transactional(5),
        transactional(6),
        marker(7, ControlType.ABORT),
        aborted=((PRODUCER, 0), (PRODUCER, 5)),
    )
    assert offsets(fetched) == [1, 3]


def test_a_commit_marker_of_another_does_not_end_an_abort() -> None:
    fetched = chunk(
        transactional(0),
        marker(1, ControlType.COMMIT, producer=8),
        transactional(2),
        aborted=((PRODUCER, 0),),
    )
    assert offsets(fetched) == []


def test_control_batches_are_hidden_from_everybody() -> None:
    assert offsets(chunk(transactional(0), marker(1, ControlType.COMMIT), transactional(2))) == [
        0,
        2,
    ]


def test_a_chunk_begins_and_ends_in_the_middle_of_batches() -> None:
    batches = [encode_batch([Record(n + m, 0, None, b"") for m in range(5)]) for n in (0, 5, 10)]
    assert offsets(chunk(*batches), 3, 12) == list(range(3, 12))


def test_a_batch_that_compaction_has_emptied_is_stepped_over() -> None:
    empty = pack_batch(
        b"",
        attributes=0,
        last_offset_delta=4,
        base_timestamp=0,
        max_timestamp=0,
        record_count=0,
        base_offset=0,
    )
    later = encode_batch([Record(5, 0, None, b"v")])
    assert offsets(chunk(empty, later)) == [5]
    assert offsets(chunk(empty)) == []
    assert offsets(chunk()) == []


@pytest.mark.parametrize("framing", ["raw", "xerial"])
def test_both_framings_of_snappy_are_read(framing: str) -> None:
    records = [Record(n, 0, b"k", b"value " * 20) for n in range(50)]
    if framing == "xerial":
        batch = encode_batch(records, codec=Codec.SNAPPY)
        assert batch[61:69] == b"\x82SNAPPY\0"
    else:
        payload = b"".join(encode_record(n, 0, b"k", b"value " * 20) for n in range(50))
        batch = pack_batch(
            bytes(cramjam.snappy.compress_raw(payload)),
            attributes=Codec.SNAPPY,
            last_offset_delta=49,
            base_timestamp=0,
            max_timestamp=0,
            record_count=50,
        )
    decoded = decode([chunk(batch)], [(0, 100)])
    assert columns.binary(decoded.data, decoded.value).to_pylist() == [b"value " * 20] * 50


def test_headers_that_are_no_text_are_shown_as_such() -> None:
    payload = encode_record(0, 0, None, None, [("k?", b"1")]).replace(b"k?", b"k\xff")
    batch = pack_batch(
        payload,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        record_count=1,
    )
    found = columns.headers(decode([chunk(batch)], [(0, 1)])).to_pylist()
    assert found == [[{"key": "k\ufffd", "value": b"1"}]]


def test_what_is_damaged_or_of_another_format_is_refused() -> None:
    good = encode_batch([Record(0, 0, None, b"v")])
    for at, said in ((16, "format"), (30, "checksum"), (11, "does not fit")):
        damaged = bytearray(good)
        damaged[at] ^= 3
        with pytest.raises(CorruptBatch, match=said):
            decode([chunk(damaged)], [(0, 1)])


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0e\0\0\0\1\2v\1",  # a header count of -1
        b"\x0d\0\0\0\1\2v\0",  # a negative length
        b"\x0e\0\0\0\1\4v\0",  # a value longer than its record
        b"\x0e\0\0\0\1\1v\0",  # bytes left in the record
        b"\x7e\0",  # a record longer than its batch
        b"\x10",
        b"",
    ],
)
def test_records_that_do_not_add_up_are_refused(payload: bytes) -> None:
    assert encode_record(0, 0, None, b"v") == b"\x0e\0\0\0\1\2v\0"
    batch = pack_batch(
        payload,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        record_count=1,
    )
    with pytest.raises(InvalidRecord):
        decode([chunk(batch)], [(0, 1)])
