"""What a broker asks of a produced batch before it appends it.

`check_batches` is the hot path: header and CRC only, in the order in which Apache Kafka looks,
so that a batch with several faults earns the same error code. It looks at single records only
where the header raises a doubt about timestamps, or where the topic's rules demand it
(`validate_records`): compacted topics, and `log.validate.records=true`.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.errors import ApiError, CorruptBatch, ErrorCode, InvalidRecord
from headrace.protocol.compression import DECOMPRESSED_BYTES_MAX
from headrace.protocol.records.budget import Budget
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import decode_payload, record_payload
from headrace.protocol.records.header import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.protocol.records.patch import clear_append_time
from headrace.protocol.records.scan import all_sound

UNBOUNDED_MS: Final = 2**63 - 1
ZSTD_SINCE_PRODUCE: Final = 7
NEWEST_PRODUCE: Final = 13
SMALLEST_RECORD: Final = 7
"""Bytes of an uncompressed record with null key, null value and no headers."""
RECORD_ERRORS_MAX: Final = 10_000
"""Bad records that one answer names; a batch may hold millions of them."""
_ZSTD: Final = 4
_SMALLEST_LENGTH: Final = 14
"""The shortest batch length Kafka's iterator lets pass (that of an empty magic 0 message)."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """A topic's demands on batches; build it once per topic config, not per request."""

    max_message_bytes: int = 1_048_588
    append_time: bool = False
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = 3_600_000
    each_record: bool = False
    """Look at every record: compacted topics and `log.validate.records`."""
    keys_required: bool = False
    """A record without key is refused: compacted topics. Only where `each_record` looks."""
    allow_transactional: bool = False
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """Where records are looked at: how much one batch may unfold to."""


DEFAULT_RULES: Final = BatchRules()

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__


def check_batches(
    buffer: memoryview,
    rules: BatchRules = DEFAULT_RULES,
    *,
    now_ms: int,
    produce_version: int = NEWEST_PRODUCE,
    budget: Budget | None = None,
) -> list[tuple[int, BatchHeader]]:
    """Check what a producer sent for one partition; return it as [(position, header)].

    A produce request may carry exactly one batch per partition, so the list has one entry.
    `buffer` must be writable: an append-time bit that the producer had no right to set is
    cleared, as Kafka does. Raises the exception whose code Kafka would answer; then nothing
    may be appended. Raises `OverBudget`, with nothing changed, where records have to be looked
    at and are too many for the budget.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise _not_one_batch(buffer, produce_version)
    header = _new_tuple(BatchHeader, _unpack_header(buffer, 0))
    (
        base_offset,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        _,
        base_sequence,
        record_count,
    ) = header
    codec = attributes & CODEC_MASK
    if batch_length + LENGTH_OVERHEAD != size or magic != MAGIC:
        raise _not_one_batch(buffer, produce_version)
    if codec >= _ZSTD:
        _check_codec_early(codec, produce_version)
    if base_offset != 0:
        raise InvalidRecord(f"the base offset of a produced batch must be 0, not {base_offset}")
    if size > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes={rules.max_message_bytes}",
        )
    if crc32c(buffer[21:]) != crc:
        raise CorruptBatch(f"the batch does not match its CRC ({crc:#010x})")
    if codec > _ZSTD:
        raise _unknown_codec(codec)
    if record_count != last_offset_delta + 1 or record_count <= 0:
        raise InvalidRecord(
            f"{record_count} records do not fit a last offset delta of {last_offset_delta}"
        )
    if codec == 0 and record_count * SMALLEST_RECORD > size - HEADER_SIZE:
        raise InvalidRecord(f"{record_count} records do not fit into {size} bytes")
    if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
        _refuse_bits(attributes, rules)
    if producer_id >= 0 and base_sequence < 0:
        raise InvalidRecord(f"sequence {base_sequence} in a batch of producer {producer_id}")
    if attributes & APPEND_TIME_BIT:
        validate_records(buffer, header, rules, now_ms=now_ms, budget=budget)
        clear_append_time(buffer, 0)
        header = _new_tuple(BatchHeader, _unpack_header(buffer, 0))
    elif rules.each_record or (
        not rules.append_time
        and max_timestamp != NO_TIMESTAMP
        and not (
            now_ms - rules.timestamp_before_max_ms <= base_timestamp
            and max_timestamp <= now_ms + rules.timestamp_after_max_ms
            and base_timestamp <= max_timestamp
        )
    ):
        validate_records(buffer, header, rules, now_ms=now_ms, budget=budget)
    return [(0, header)]


class NotOneBatch(InvalidRecord):
    """What came for a partition is not one batch that could be looked at any further."""


def _not_one_batch(buffer: memoryview, produce_version: int) -> Exception:
    """Why the buffer is not exactly one magic 2 batch, in the words of Kafka's error codes."""
    size = len(buffer)
    none = NotOneBatch("a produce request must have one record batch per partition")
    length = _leading_batch(buffer)
    if length is None:
        return none
    if buffer[MAGIC_AT] != MAGIC:
        return NotOneBatch(
            f"produce requests may only carry magic {MAGIC} batches, not {buffer[MAGIC_AT]}"
        )
    codec = buffer[22] & CODEC_MASK
    _check_codec_early(codec, produce_version)
    if length == size:
        return CorruptBatch(f"a batch of {size} bytes is shorter than its own header")
    if _leading_batch(buffer[length:]) is not None:
        return NotOneBatch("a produce request may have only one record batch per partition")
    return CorruptBatch(f"{size - length} stray bytes behind the batch")


def _leading_batch(buffer: memoryview) -> int | None:
    """Size of the first batch of any magic, None if no whole one is there."""
    size = len(buffer)
    if size < LENGTH_OVERHEAD:
        return None
    batch_length = int.from_bytes(buffer[8:12], "big", signed=True)
    if batch_length < _SMALLEST_LENGTH:
        raise CorruptBatch(f"a batch length of {batch_length} is less than the smallest possible")
    if size <= MAGIC_AT:
        return None
    if buffer[MAGIC_AT] > MAGIC:
        raise CorruptBatch(f"invalid magic {buffer[MAGIC_AT]}")
    length = batch_length + LENGTH_OVERHEAD
    return None if length > size else length


def _check_codec_early(codec: int, produce_version: int) -> None:
    """Before ZSTD was in the protocol Kafka reads the codec first of all."""
    if produce_version < ZSTD_SINCE_PRODUCE:
        if codec == _ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce v{produce_version} may not carry zstd, v{ZSTD_SINCE_PRODUCE} may",
            )
        if codec > _ZSTD:
            raise _unknown_codec(codec)


def _unknown_codec(codec: int) -> ApiError:
    # Kafka trips over it with an exception that has no code of its own.
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression codec {codec}")


def _refuse_bits(attributes: int, rules: BatchRules) -> None:
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control records")
    if not rules.allow_transactional:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional batches are not accepted outside a transaction",
        )


def validate_records(
    buffer: memoryview,
    header: BatchHeader,
    rules: BatchRules,
    *,
    now_ms: int,
    position: int = 0,
    budget: Budget | None = None,
) -> None:
    """Look at every record of the batch at `position`, whose header has been checked.

    All bad records are gathered into one `InvalidRecord`, by index, so that a producer can tell
    exactly those from the others (KIP-467).
    """
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    check_range = not rules.append_time
    errors: list[tuple[int, str]] = []
    bad_timestamp = False
    try:
        payload = record_payload(
            buffer, header, position, rules.decompressed_bytes_max, budget=budget
        )
    except CorruptBatch as error:
        # In Kafka a broken stream surfaces as an exception that has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
    if not header.uses_append_time and all_sound(
        payload,
        header.record_count,
        keys_required=rules.keys_required,
        delta_min=earliest - header.base_timestamp if check_range else -UNBOUNDED_MS,
        delta_max=latest - header.base_timestamp if check_range else UNBOUNDED_MS,
    ):
        return
    records = decode_payload(payload, header)
    for index, (offset, timestamp, key, _, _) in enumerate(records):
        if offset != header.base_offset + index:
            raise InvalidRecord(
                f"record {index} has offset delta {offset - header.base_offset}, not its index"
            )
        if len(errors) >= RECORD_ERRORS_MAX:
            break
        if key is None and rules.keys_required:
            errors.append((index, "Compacted topic cannot accept message without key."))
        elif check_range and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                bad_timestamp = True
                errors.append(
                    (index, f"Timestamp {timestamp} is out of range [{earliest}, {latest}].")
                )
        elif header.uses_append_time:
            bad_timestamp = True
            errors.append((index, "Producers may not set the timestamp type to LogAppendTime."))
    if bad_timestamp:
        raise InvalidRecord(
            "one or more records have an invalid timestamp",
            errors,
            code=ErrorCode.INVALID_TIMESTAMP,
        )
    if errors:
        raise InvalidRecord(f"{len(errors)} of the batch's records are invalid", errors)
