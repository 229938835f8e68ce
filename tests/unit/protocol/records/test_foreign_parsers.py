"""Our batches are read by other people's parsers, and theirs by ours."""

from __future__ import annotations

import pytest

from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import parse_header
from headrace.protocol.records.validate import BatchRules, check_batches
from tests.support.foreign_records import READERS, WRITERS

NOW = 1_700_000_000_000
# Whole seconds: kio reads no finer.
ROWS = [
    Record(0, NOW, b"key", b"value"),
    Record(1, NOW + 7000, None, b"no key"),
    Record(2, NOW + 5000, b"no value", None),
    Record(3, NOW + 5000, b"", b""),
    Record(4, NOW + 9000, b"k" * 70, b"v" * 20_000, (("h", b"1"), ("h", None), ("ünï", b""))),
]


PAIRS = [
    (reader, codec)
    for reader in READERS
    for codec in Codec
    if reader != "kio" or codec == Codec.NONE  # kio does not decompress
]


@pytest.mark.parametrize(("reader", "codec"), PAIRS)
def test_others_read_what_we_write(reader: str, codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=codec)
    assert READERS[reader](bytes(batch)) == ROWS


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_what_others_write(writer: str, codec: Codec) -> None:
    batch = bytearray(WRITERS[writer](ROWS, codec))
    rules = BatchRules(each_record=True)
    [(position, header)] = check_batches(memoryview(batch), rules, now_ms=NOW)
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 5)
    assert list(iterate_records(batch, position, header)) == ROWS


@pytest.mark.parametrize("writer", WRITERS)
def test_uncompressed_batches_are_the_same_bytes(writer: str) -> None:
    theirs = WRITERS[writer](ROWS, Codec.NONE)
    epoch = parse_header(theirs).leader_epoch
    ours = encode_batch(ROWS, leader_epoch=epoch, producer_id=11, producer_epoch=2, base_sequence=5)
    assert bytes(ours) == theirs
