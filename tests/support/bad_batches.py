"""Batches that a broker must refuse, and a few it must take, with the answer that is due.

One table, judged twice: by our own checks in the unit tests, and by Apache Kafka's classes where
its jars are within reach, so that the codes in it are Kafka's and not our guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack_into

from headrace.core.errors import ErrorCode
from headrace.protocol.compression import Codec
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch, encode_record, pack_batch
from headrace.protocol.records.patch import refresh_crc
from headrace.protocol.records.validate import BatchRules

NOW = 1_700_000_000_000
STRICT_TIME = BatchRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
COMPACTED = BatchRules(each_record=True, keys_required=True)
EACH_RECORD = BatchRules(each_record=True)
APPEND_TIME = BatchRules(append_time=True)
SMALL = BatchRules(max_message_bytes=100)


@dataclass(frozen=True)
class Case:
    """Bytes for one partition of a produce request, and what the answer must be."""

    name: str
    content: bytes
    code: ErrorCode
    rules: BatchRules = field(default_factory=BatchRules)
    version: int = 9
    bad_records: tuple[int, ...] = ()
    kafka_code: ErrorCode | None = None
    """Where we differ from Kafka on purpose (listed in docs/compatibility.md)."""


def _records(
    count: int = 3, timestamp: int = NOW, key: bytes | None = b"k", value: bytes = b"value"
) -> list[Record]:
    return [Record(index, timestamp, key, value) for index in range(count)]


def _batch(count: int = 3, codec: int = Codec.NONE, producer_id: int = -1, seq: int = -1) -> bytes:
    return bytes(
        encode_batch(
            _records(count),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=seq,
        )
    )


def _changed(change: Callable[[bytearray], None], batch: bytes | None = None) -> bytes:
    """A batch after `change`, with a CRC that matches again."""
    content = bytearray(_batch() if batch is None else batch)
    change(content)
    refresh_crc(content, 0)
    return bytes(content)


def _put(layout: str, position: int, value: int) -> Callable[[bytearray], None]:
    return lambda content: pack_into(layout, content, position, value)


def _flip(position: int) -> bytes:
    content = bytearray(_batch())
    content[position] ^= 1
    return bytes(content)


def _raw(payload: bytes, count: int, codec: int = Codec.NONE) -> bytes:
    """A well-sealed batch around whatever payload."""
    return bytes(
        pack_batch(
            payload,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=NOW,
            max_timestamp=NOW,
            record_count=count,
        )
    )


def _mixed_keys() -> bytes:
    rows = [Record(i, NOW, None if i in (1, 3) else b"k", b"v") for i in range(5)]
    return bytes(encode_batch(rows))


def _mixed_times(*times: int, codec: int = Codec.NONE) -> bytes:
    return bytes(encode_batch((Record(i, t, b"k", b"v") for i, t in enumerate(times)), codec=codec))


_OK = ErrorCode.NONE
_INVALID = ErrorCode.INVALID_RECORD
_CORRUPT = ErrorCode.CORRUPT_MESSAGE
_TIME = ErrorCode.INVALID_TIMESTAMP
_SERVER = ErrorCode.UNKNOWN_SERVER_ERROR

HEADER_CASES = [
    *(Case(f"a good batch, codec {codec.name}", _batch(codec=codec), _OK) for codec in Codec),
    Case("a good idempotent batch", _batch(producer_id=5, seq=0), _OK),
    Case("no bytes at all", b"", _INVALID),
    Case("eleven bytes", _batch()[:11], _INVALID),
    Case("a header cut before the magic", _batch()[:16], _INVALID),
    Case("a header cut behind the magic", _batch()[:40], _INVALID),
    Case("a batch cut short", _batch()[:-1], _INVALID),
    Case("two batches", _batch() * 2, _INVALID),
    Case("stray bytes behind the batch", _batch() + b"x" * 5, _CORRUPT, kafka_code=_OK),
    Case("a bad second batch", _batch() + bytes(20), _CORRUPT),
    Case("a length below any batch", _changed(_put(">i", 8, 13)), _CORRUPT),
    Case("a negative length", _changed(_put(">i", 8, -1)), _CORRUPT),
    Case(
        "a length below the header",
        _batch()[:8] + (20).to_bytes(4, "big") + _batch()[12:32],
        _CORRUPT,
    ),
    Case("magic 0", _changed(_put(">b", 16, 0)), _INVALID),
    Case("magic 1", _changed(_put(">b", 16, 1)), _INVALID),
    Case("magic 3", _changed(_put(">b", 16, 3)), _CORRUPT),
    Case("a negative magic", _changed(_put(">b", 16, -2)), _CORRUPT),
    Case("a wrong CRC", _flip(17), _CORRUPT),
    Case("a flipped bit in the attributes", _flip(22), _CORRUPT),
    Case("a flipped bit in a record", _flip(70), _CORRUPT),
    Case(
        "zstd before Produce v7",
        _batch(codec=Codec.ZSTD),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        version=6,
    ),
    Case("zstd in Produce v7", _batch(codec=Codec.ZSTD), _OK, version=7),
    Case("an unknown codec", _changed(_put(">h", 21, 5)), _SERVER),
    Case("an unknown codec in an old version", _changed(_put(">h", 21, 7)), _SERVER, version=3),
    Case("a base offset", _changed(_put(">q", 0, 7)), _INVALID),
    Case("more bytes than max.message.bytes", _batch(9), ErrorCode.MESSAGE_TOO_LARGE, rules=SMALL),
    Case("a larger count than the delta", _changed(_put(">i", 57, 4)), _INVALID),
    Case("a smaller count than the delta", _changed(_put(">i", 57, 2)), _INVALID),
    Case("no records", _raw(b"", 0), _INVALID),
    Case("a negative count", _changed(_put(">i", 57, -3), _changed(_put(">i", 23, -4))), _INVALID),
    Case("a delta of -1", _changed(_put(">i", 23, -1)), _INVALID),
    Case("more records than bytes", _raw(b"", 1000), _INVALID),
    Case("a control batch", _changed(_put(">h", 21, 0x20)), _INVALID),
    Case("a producer id without sequence", _batch(producer_id=5), _INVALID),
    Case("a wrong CRC in a batch with a base offset", _flip(7), _INVALID),
    Case("unused attribute bits", _changed(_put(">h", 21, 0x180)), _OK),
]

TIME_CASES = [
    Case(
        "a timestamp too old",
        bytes(encode_batch(_records(2, NOW - 1001))),
        _TIME,
        STRICT_TIME,
        bad_records=(0, 1),
    ),
    Case(
        "a timestamp too new",
        bytes(encode_batch(_records(2, NOW + 1001))),
        _TIME,
        STRICT_TIME,
        bad_records=(0, 1),
    ),
    Case("timestamps just in range", _mixed_times(NOW - 1000, NOW + 1000), _OK, STRICT_TIME),
    Case(
        "the first record too old",
        _mixed_times(NOW - 1001, NOW),
        _TIME,
        STRICT_TIME,
        bad_records=(0,),
    ),
    Case(
        "one of three too new, gzip",
        _mixed_times(NOW, NOW + 9999, NOW, codec=Codec.GZIP),
        _TIME,
        STRICT_TIME,
        bad_records=(1,),
    ),
    Case("no timestamps", bytes(encode_batch(_records(2, -1))), _OK, STRICT_TIME),
    Case(
        "any timestamp under LogAppendTime",
        bytes(encode_batch(_records(2, 5))),
        _OK,
        BatchRules(append_time=True, timestamp_before_max_ms=1, timestamp_after_max_ms=1),
    ),
    Case(
        "the append-time bit under LogAppendTime",
        _changed(_put(">h", 21, 8)),
        _TIME,
        APPEND_TIME,
        bad_records=(0, 1, 2),
    ),
    Case("the append-time bit under CreateTime", _changed(_put(">h", 21, 8)), _OK),
    Case(
        "the append-time bit without a time",
        _changed(_put(">h", 21, 8), bytes(encode_batch(_records(2, -1)))),
        _TIME,
        bad_records=(0, 1),
    ),
]

RECORD_CASES = [
    Case("keys everywhere on a compacted topic", _batch(), _OK, COMPACTED),
    Case(
        "records without key on a compacted topic",
        _mixed_keys(),
        _INVALID,
        COMPACTED,
        bad_records=(1, 3),
    ),
    Case("records without key elsewhere", _mixed_keys(), _OK, EACH_RECORD),
    Case(
        "a key missing and a time out of range",
        bytes(encode_batch([Record(0, NOW, None, b"v"), Record(1, NOW + 10**8, b"k", b"v")])),
        _TIME,
        COMPACTED,
        bad_records=(0, 1),
    ),
    Case(
        "fewer records than counted",
        _raw(encode_record(0, 0, b"k", b"v" * 20), 2),
        _INVALID,
        EACH_RECORD,
    ),
    Case(
        "more records than counted",
        _raw(encode_record(0, 0, b"k", b"v") + encode_record(1, 0, b"k", b"v"), 1),
        _INVALID,
        EACH_RECORD,
    ),
    Case(
        "a record longer than its batch",
        _raw(b"\x7e" + encode_record(0, 0, b"k", b"v")[1:], 1),
        _INVALID,
        EACH_RECORD,
    ),
    Case(
        "a record shorter than its parts",
        _raw(b"\x0c" + encode_record(0, 0, b"k", b"v")[1:], 1),
        _INVALID,
        EACH_RECORD,
    ),
    Case(
        "a key longer than its record",
        _raw(bytes([18, 0, 0, 0, 100, 107, 2, 118, 0, 0]), 1),
        _INVALID,
        EACH_RECORD,
    ),
    Case("a negative header count", _raw(bytes([12, 0, 0, 0, 1, 1, 1]), 1), _INVALID, EACH_RECORD),
    Case(
        "more headers than bytes", _raw(bytes([12, 0, 0, 0, 1, 1, 100]), 1), _INVALID, EACH_RECORD
    ),
    Case(
        "a header without key", _raw(bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), 1), _INVALID, EACH_RECORD
    ),
    Case(
        "offset deltas with a gap",
        _raw(encode_record(0, 0, b"k", b"v") + encode_record(2, 0, b"k", b"v"), 2),
        _INVALID,
        EACH_RECORD,
        kafka_code=_OK,
    ),
    *(
        Case(
            f"rubbish instead of {codec.name}",
            _raw(b"rubbish!" * 9, 1, codec),
            _SERVER,
            EACH_RECORD,
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ),
    *(
        Case(
            f"a cut {codec.name} stream",
            _changed(lambda b: pack_into(">i", b, 8, len(b) - 12), _batch(90, codec)[:-8]),
            _SERVER,
            EACH_RECORD,
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ),
]

ALL_CASES = HEADER_CASES + TIME_CASES + RECORD_CASES
