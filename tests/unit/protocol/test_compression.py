"""Four codecs, both snappy framings, nothing unbounded."""

from __future__ import annotations

import gzip
import tracemalloc
from importlib import import_module
from typing import Any

import cramjam
import pytest
import zstandard

from headrace.core.errors import CorruptBatch, ErrorCode, HeadraceError
from headrace.protocol.compression import Codec, compress, decompress

lz4_frame: Any = import_module("lz4.frame")  # published without types
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PAYLOADS = [b"", b"x", b"abc" * 50_000, bytes(range(256)) * 300]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_what_goes_in_comes_out(codec: Codec, payload: bytes) -> None:
    packed = compress(codec, payload)
    assert bytes(decompress(codec, packed)) == payload
    assert bytes(decompress(codec, memoryview(bytes(packed)))) == payload


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.ZSTD, (1, 19))])
def test_levels_trade_time_for_size(codec: Codec, levels: tuple[int, int]) -> None:
    payload = b"".join(b"%d:%d " % (i, i * i % 977) for i in range(20_000))
    low, high = (compress(codec, payload, level) for level in levels)
    assert len(high) < len(low)
    assert bytes(decompress(codec, low)) == bytes(decompress(codec, high)) == payload


def test_other_implementations_read_ours_and_we_theirs() -> None:
    payload = b"some text, some more text " * 5000
    assert gzip.decompress(compress(Codec.GZIP, payload)) == payload
    assert lz4_frame.decompress(bytes(compress(Codec.LZ4, payload))) == payload
    reader = zstandard.ZstdDecompressor().decompressobj()
    assert reader.decompress(bytes(compress(Codec.ZSTD, payload))) == payload
    assert decompress(Codec.GZIP, gzip.compress(payload)) == payload
    assert decompress(Codec.LZ4, lz4_frame.compress(payload)) == payload
    assert decompress(Codec.ZSTD, zstandard.ZstdCompressor().compress(payload)) == payload


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    frame = bytes(compress(Codec.LZ4, b"abc" * 100_000))
    assert frame[4] & 0x20, "the block-independence flag"


def test_both_snappy_framings_are_read() -> None:
    payload = b"snap " * 30_000
    xerial = bytes(compress(Codec.SNAPPY, payload))
    assert xerial.startswith(b"\x82SNAPPY\0")
    raw = bytes(cramjam.snappy.compress_raw(payload))
    assert decompress(Codec.SNAPPY, xerial) == payload
    assert decompress(Codec.SNAPPY, raw) == payload
    assert decompress(Codec.SNAPPY, xerial + xerial) == payload * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["rubbish", "cut", "empty"])
def test_damaged_bytes_are_corrupt(codec: Codec, damage: str) -> None:
    whole = bytes(compress(codec, b"payload " * 5000))
    damaged = {"rubbish": b"\xfe" * 50, "cut": whole[:-5], "empty": b""}[damage]
    with pytest.raises(CorruptBatch):
        decompress(codec, damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_its_bound(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(64_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(HeadraceError) as refusal:
            decompress(codec, bomb, max_bytes=500_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 4_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_itself_is_allowed(codec: Codec) -> None:
    packed = compress(codec, bytes(500_000))
    assert len(decompress(codec, packed, max_bytes=500_000)) == 500_000


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decompress(6, b"x")
    with pytest.raises(CorruptBatch):
        compress(6, b"x")
