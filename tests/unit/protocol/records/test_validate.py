"""What a produced batch must look like, and Kafka's code for each way to get it wrong."""

from __future__ import annotations

import pytest

from headrace.core.errors import ErrorCode, HeadraceError, InvalidRecord
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import crc_matches, parse_header
from headrace.protocol.records.validate import BatchRules, check_batches
from tests.support.bad_batches import ALL_CASES, EACH_RECORD, NOW, Case


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_each_bad_batch_earns_the_code_that_kafka_gives(case: Case) -> None:
    buffer = memoryview(bytearray(case.content))
    bad_records: tuple[int, ...] = ()
    code = ErrorCode.NONE
    try:
        batches = check_batches(buffer, case.rules, now_ms=NOW, produce_version=case.version)
    except HeadraceError as error:
        code = error.code
        if isinstance(error, InvalidRecord):
            bad_records = tuple(index for index, _ in error.record_errors)
    else:
        assert [header for _, header in batches] == [parse_header(buffer)]
    assert (code, bad_records) == (case.code, case.bad_records)


def test_an_append_time_bit_of_the_producer_is_taken_back() -> None:
    batch = encode_batch([Record(0, NOW - 5, b"k", b"v")], append_time=True)
    view = memoryview(batch)
    [(position, header)] = check_batches(view, now_ms=NOW)
    assert not header.uses_append_time
    assert header == parse_header(batch)
    assert crc_matches(view, position, header)


def test_the_transactional_bit_is_refused_unless_allowed() -> None:
    batch = encode_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    with pytest.raises(HeadraceError) as refusal:
        check_batches(memoryview(batch), now_ms=NOW)
    assert refusal.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    [(_, header)] = check_batches(
        memoryview(batch), BatchRules(allow_transactional=True), now_ms=NOW
    )
    assert header.is_transactional


def test_the_hot_path_does_not_look_into_records() -> None:
    content = next(c.content for c in ALL_CASES if c.name == "fewer records than counted")
    assert check_batches(memoryview(bytearray(content)), now_ms=NOW)
    with pytest.raises(InvalidRecord):
        check_batches(memoryview(bytearray(content)), EACH_RECORD, now_ms=NOW)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused_at_its_bound(codec: Codec) -> None:
    batch = encode_batch([Record(0, NOW, b"k", bytes(4_000_000))], codec=codec)
    rules = BatchRules(each_record=True, decompressed_bytes_max=1_000_000)
    with pytest.raises(HeadraceError) as refusal:
        check_batches(memoryview(batch), rules, now_ms=NOW)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert check_batches(memoryview(batch), EACH_RECORD, now_ms=NOW)


def test_a_refused_batch_is_left_as_it_came() -> None:
    for case in ALL_CASES:
        if case.code != ErrorCode.NONE:
            buffer = bytearray(case.content)
            with pytest.raises(HeadraceError):
                check_batches(
                    memoryview(buffer), case.rules, now_ms=NOW, produce_version=case.version
                )
            assert buffer == case.content, case.name


def test_a_good_batch_keeps_its_records() -> None:
    rows = [Record(i, NOW + i, b"k%d" % i, None, (("h", b"1"), ("h", None))) for i in range(4)]
    batch = encode_batch(rows, codec=Codec.ZSTD)
    check_batches(memoryview(batch), EACH_RECORD, now_ms=NOW)
    assert list(iterate_records(batch)) == rows
