"""One batch without the records that go.

The batch keeps its base offset and last offset, so offsets stay what they were and the producer's
last sequence can still be read from the header. Records that stay are copied as encoded bytes.

Tombstones stay for `delete.retention.ms` after the first compaction that saw them, so that
readers on their way can learn of the deletion. KIP-534 keeps that time in the batch itself: bit 6
set, and the base timestamp replaced by the horizon, which shifts every record's delta.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.files import Buffer
from headrace.protocol.compression import compress
from headrace.protocol.records.decode import read_long_varint, read_varint
from headrace.protocol.records.encode import pack_batch
from headrace.protocol.records.header import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.protocol.records.varint import encode_varint

_NULL: Final = 1


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """What stays of a batch: encoded records, how many, and what their header must say."""

    payload: bytes
    count: int
    max_timestamp: int
    has_tombstones: bool = False


def pack_kept(header: BatchHeader, kept: KeptRecords, delete_horizon: int | None) -> bytearray:
    """The batch with the records that stay, under its old codec."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon
    return _pack(header, compress(header.codec, kept.payload), attributes, base_timestamp, kept)


def pack_empty(header: BatchHeader) -> bytearray:
    """Only the header, for the sake of the producer's epoch and last sequence."""
    attributes = header.attributes & (APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _pack(header, b"", attributes, NO_TIMESTAMP, KeptRecords(b"", 0, header.max_timestamp))


def _pack(
    header: BatchHeader, payload: Buffer, attributes: int, base_timestamp: int, kept: KeptRecords
) -> bytearray:
    append_time = header.attributes & APPEND_TIME_BIT
    return pack_batch(
        payload,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if append_time else kept.max_timestamp,
        record_count=kept.count,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def keep_records(data: bytes, position: int, header: BatchHeader, survivors: int) -> KeptRecords:
    """The survivors of a batch without tombstones. `scan_keys` has found the records sound."""
    pieces: list[bytes] = []
    run_start = position
    count = 0
    latest_delta: int | None = None
    # The lowest bit is the first record; one character each is quicker to walk than bits.
    for survives in format(survivors, f"0{header.record_count}b")[::-1]:
        start = position
        n = data[position]
        position += 1
        if n > 127:
            n, position = read_long_varint(data, position, n)
        end = position + (n >> 1)
        if survives == "1":
            count += 1
            n = data[position + 1]
            if n > 127:
                n, _ = read_long_varint(data, position + 2, n)
            delta = (n >> 1) ^ -(n & 1)
            if latest_delta is None or delta > latest_delta:
                latest_delta = delta
        else:
            # A run of survivors is copied in one piece.
            if run_start < start:
                pieces.append(data[run_start:start])
            run_start = end
        position = end
    if run_start < position:
        pieces.append(data[run_start:position])
    return KeptRecords(b"".join(pieces), count, header.base_timestamp + (latest_delta or 0))


def keep_records_and_tombstones(
    data: bytes,
    position: int,
    header: BatchHeader,
    survivors: int,
    *,
    drop_tombstones: bool,
    delete_horizon: int | None,
) -> KeptRecords:
    """The survivors of a batch that may hold tombstones.

    With a new `delete_horizon` every timestamp delta is counted from it instead.
    """
    shift = 0 if delete_horizon is None else header.base_timestamp - delete_horizon
    pieces: list[bytes] = []
    max_timestamp = NO_TIMESTAMP
    has_tombstones = False
    for survives in format(survivors, f"0{header.record_count}b")[::-1]:
        start = position
        length, position = read_varint(data, position)
        end = position + length
        if survives == "1":
            delta, rest = read_varint(data, position + 1)
            is_tombstone = _is_tombstone(data, rest)
            if not (is_tombstone and drop_tombstones):
                has_tombstones = has_tombstones or is_tombstone
                max_timestamp = max(max_timestamp, header.base_timestamp + delta)
                if shift:
                    body = data[position : position + 1] + encode_varint(delta + shift)
                    body += data[rest:end]
                    pieces.append(encode_varint(len(body)) + body)
                else:
                    pieces.append(data[start:end])
        position = end
    return KeptRecords(b"".join(pieces), len(pieces), max_timestamp, has_tombstones)


def _is_tombstone(data: bytes, position: int) -> bool:
    """Whether the value is null; `position` is that of the offset delta."""
    _, position = read_varint(data, position)
    key_length, position = read_varint(data, position)
    return data[position + max(key_length, 0)] == _NULL
