"""What goes through the gateway, and how much of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.protocol.records.decode import Record

Headers = Sequence[tuple[str, bytes | None]]


class OutRecord(NamedTuple):
    """A record to write. Without a partition the key decides, without a key partitions take turns.

    `timestamp_ms` None means the time of the call.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Produced(NamedTuple):
    """Where a record went, or why it did not; offset -1 with an error and with acks=0."""

    partition: int
    offset: int
    error: HeadraceError | None = None


class ReadResult(NamedTuple):
    """Records of one partition; reading goes on at `next_offset`."""

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds of what one call may hold in memory or wait for.

    `batch_bytes` stays below Kafka's default `message.max.bytes`. An idempotency key is good for
    `key_lifetime_ms`, which must be less than the brokers' `producer.id.expiration.ms`. Of keys
    that are good, times the partitions that each writes to, there are at most `keys_max`: one costs
    some 300 bytes here, and 430 in the broker for as long as it remembers producers. `lookup_ms` is
    how long a topic that does not exist yet is waited for, `produce_ms` how long writing is tried
    where a call does not say.
    """

    batch_bytes: int = 1_000_000
    lookup_ms: int = 1_000
    produce_ms: int = 30_000
    key_lifetime_ms: int = 12 * 3_600_000
    keys_max: int = 200_000
    key_chars: int = 255


class IdempotencyKeyReused(ApiError):
    """The key came before with other records; answering with theirs would hide a fault."""

    def __init__(self, key: str) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"idempotency key {key!r} was used before with other records",
            hint="use a new key for each request; repeat a key only to repeat the same request",
        )


class TooManyKeys(ApiError):
    """No key is forgotten before its time, so there is no room for a new one."""

    def __init__(self, keys_max: int) -> None:
        super().__init__(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"all {keys_max} idempotency keys are in use; nothing was written",
            hint="try again when older keys have expired, or put more records into each request",
        )


class KeyLifetimeTooLong(ApiError):
    """Brokers would take a repeated request for a new one while its key is still good."""

    def __init__(self, lifetime_ms: int, expiration_ms: int) -> None:
        super().__init__(
            ErrorCode.INVALID_CONFIG,
            f"idempotency keys are good for {lifetime_ms} ms, and a broker forgets after "
            f"producer.id.expiration.ms={expiration_ms} what was written under them; nothing was "
            "written",
            hint="raise producer.id.expiration.ms, or send the request without a key",
        )


class NotAttempted(ApiError):
    """Records that were not written because of others before them, and may be sent again."""

    def __init__(self, partition: int | None) -> None:
        where = "" if partition is None else f" of partition {partition}"
        super().__init__(
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            f"not tried, since records{where} before this one have failed",
            hint="it is in no log: send it again",
        )


class DuplicateWithoutOffset(ApiError):
    """The broker has these records, and no longer knows where."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"partition {partition} of {topic!r} has these records from an earlier run of this "
            "idempotency key, and no longer knows at which offsets",
            hint="they are written: do not send them again under another key",
        )


class TooManyRecords(ApiError):
    """More records than a key can vouch for: brokers remember five batches of a producer."""

    def __init__(self, partition: int, batches_max: int) -> None:
        super().__init__(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"with an idempotency key, partition {partition} takes at most {batches_max} batches",
            hint="send fewer records per request, each request with its own key",
        )
