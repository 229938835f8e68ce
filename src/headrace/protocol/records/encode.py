"""Batches from records: a builder for producers, and whole batches at once for everyone else."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

from headrace.core.files import Buffer
from headrace.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import Header, Record, record_payload
from headrace.protocol.records.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from headrace.protocol.records.varint import SMALL_VARINTS, encode_varint

_NULL: Final = encode_varint(-1)
_ZERO: Final = encode_varint(0)
_small: Final = SMALL_VARINTS
_pack_uint32 = Struct(">I").pack_into


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """One record as it lies in a batch, its own length first."""
    if not headers and offset_delta >= 0:
        try:
            # Nearly every record: all numbers small enough to be looked up.
            body = b"".join(
                (
                    b"\0",
                    _small[timestamp_delta]
                    if timestamp_delta >= 0
                    else encode_varint(timestamp_delta),
                    _small[offset_delta],
                    _NULL if key is None else _small[len(key)],
                    key or b"",
                    _NULL if value is None else _small[len(value)],
                    value or b"",
                    _ZERO,
                )
            )
            return _small[len(body)] + body
        except IndexError:
            pass
    return _encode_any_record(offset_delta, timestamp_delta, key, value, headers)


def _encode_any_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[Header],
) -> bytes:
    parts: list[Buffer] = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    if key is None:
        parts.append(_NULL)
    else:
        parts += (encode_varint(len(key)), key)
    if value is None:
        parts.append(_NULL)
    else:
        parts += (encode_varint(len(value)), value)
    parts.append(encode_varint(len(headers)))
    _encode_headers(parts, headers)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_headers(parts: list[Buffer], headers: Sequence[Header]) -> None:
    for name, value in headers:
        key = name.encode()
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)


def pack_batch(
    payload: Buffer,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Header and CRC in front of encoded (and compressed) records."""
    size = HEADER_SIZE + len(payload)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch += payload
    with memoryview(batch) as view:
        _pack_uint32(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))
    return batch


class BatchBuilder:
    """Collects records for one batch, as a producer fills it.

    Record i has offset delta i. The builder can be sealed only once records are in it, but
    as often as wanted: a retry with another producer epoch or sequence seals it again.
    """

    __slots__ = ("_base_timestamp", "_max_timestamp", "_records", "record_count")

    def __init__(self) -> None:
        self._records = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.record_count = 0

    @property
    def size(self) -> int:
        """Bytes of the batch as it stands, uncompressed."""
        return HEADER_SIZE + len(self._records)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header] = (),
        timestamp: int = NO_TIMESTAMP,
    ) -> int:
        """Add a record; return its offset delta. One that cannot be encoded changes nothing."""
        index = self.record_count
        base_timestamp = self._base_timestamp if index else timestamp
        self._records += encode_record(index, timestamp - base_timestamp, key, value, headers)
        self._base_timestamp = base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.record_count = index + 1
        return index

    def build(
        self,
        codec: int = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        *,
        level: int | None = None,
        transactional: bool = False,
    ) -> bytearray:
        """The batch as bytes, base offset 0, ready for a produce request."""
        assert self.record_count > 0, "a batch needs a record"
        return pack_batch(
            compress(codec, self._records, level),
            attributes=codec | (TRANSACTIONAL_BIT if transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            record_count=self.record_count,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def encode_batch(
    records: Iterable[Record],
    *,
    leader_epoch: int = -1,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
) -> bytearray:
    """A batch of records whose offsets are given and may have gaps."""
    content = list(records)
    assert content, "a batch needs a record"
    base_offset = content[0].offset
    base_timestamp = content[0].timestamp if delete_horizon is None else delete_horizon
    payload = b"".join(
        encode_record(offset - base_offset, timestamp - base_timestamp, key, value, headers)
        for offset, timestamp, key, value, headers in content
    )
    return pack_batch(
        compress(codec, payload, level),
        attributes=codec
        | (APPEND_TIME_BIT if append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (0 if delete_horizon is None else DELETE_HORIZON_BIT),
        last_offset_delta=content[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in content),
        record_count=len(content),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class ControlType(IntEnum):
    """What a control record says; its key is `version (int16), type (int16)`."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_control_batch(
    records: Sequence[tuple[ControlType, bytes]],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of control records with the given values, at consecutive offsets."""
    return encode_batch(
        (
            Record(base_offset + index, timestamp, Struct(">hh").pack(0, kind), value)
            for index, (kind, value) in enumerate(records)
        ),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def recompress(
    batch: Buffer,
    codec: int,
    level: int | None = None,
    *,
    position: int = 0,
    header: BatchHeader | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same batch under another codec (topic `compression.type`), records untouched."""
    if header is None:
        header = parse_header(batch, position)
    payload = record_payload(batch, header, position, max_bytes)
    return pack_batch(
        compress(codec, payload, level),
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        record_count=header.record_count,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
