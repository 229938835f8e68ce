"""Errors as HTTP clients see them: a status, a code of five digits, a message and a hint.

The first three digits of a code are the status; what follows is REST Proxy's where it has one.
`http_error_of` is the one place where a `HeadraceError` becomes a response.
"""

from typing import Final

import msgspec

from headrace.core.errors import ErrorCode, HeadraceError


class ErrorBody(msgspec.Struct, frozen=True):
    """What every refused request is answered with."""

    error_code: int
    message: str
    hint: str = ""
    kafka_error: str | msgspec.UnsetType = msgspec.UNSET
    """Kafka's name of the error, where a Kafka rule was broken."""


class HttpError(HeadraceError):
    """A request that is refused by the HTTP API."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(
        self,
        error_code: int,
        message: str,
        *,
        hint: str = "",
        kafka_error: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.error_code = error_code
        self.kafka_error = kafka_error
        self.headers = headers

    @property
    def status(self) -> int:
        return self.error_code if self.error_code < 1000 else self.error_code // 100

    def body(self) -> ErrorBody:
        name = msgspec.UNSET if self.kafka_error is None else self.kafka_error
        return ErrorBody(self.error_code, self.message, self.hint, name)


INTERNAL_TOPIC: Final = 40304
NOT_ALLOWED: Final = 40301
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
INSTANCE_NOT_FOUND: Final = 40403
GROUP_NOT_FOUND: Final = 40405
BROKER_NOT_FOUND: Final = 40407
FORMAT_MISMATCH: Final = 40601
INSTANCE_EXISTS: Final = 40902
ILLEGAL_STATE: Final = 40903
INVALID_CONSUMER_CONFIG: Final = 42204
TOO_MANY_RECORDS: Final = 41304
OFFSET_OUT_OF_RANGE: Final = 41601
TOO_MANY: Final = 42901
RETRY: Final = 50003
BODIES_FULL: Final = 50303
UNEXPECTED: Final = 50002

FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
# A refusal by a Kafka rule, as (HTTP error code, hint where the error itself brings none).
_BY_KAFKA_CODE: Final[dict[ErrorCode, tuple[int, str]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (TOPIC_NOT_FOUND, "GET /topics lists the topics"),
    ErrorCode.UNKNOWN_TOPIC_ID: (TOPIC_NOT_FOUND, "GET /topics lists the topics"),
    ErrorCode.GROUP_ID_NOT_FOUND: (GROUP_NOT_FOUND, "GET /groups lists the groups"),
    ErrorCode.RESOURCE_NOT_FOUND: (404, ""),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (BROKER_NOT_FOUND, "GET /brokers lists the brokers"),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        INSTANCE_NOT_FOUND,
        "the group has dropped this consumer; create and subscribe it again",
    ),
    **dict.fromkeys(FORBIDDEN, (NOT_ALLOWED, "")),
    ErrorCode.TOPIC_ALREADY_EXISTS: (40904, ""),
    ErrorCode.NON_EMPTY_GROUP: (40905, "stop the group's consumers first"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (40905, "stop the group's consumers first"),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: (40906, ""),
    ErrorCode.ILLEGAL_GENERATION: (ILLEGAL_STATE, "the group has rebalanced; read again"),
    ErrorCode.STALE_MEMBER_EPOCH: (ILLEGAL_STATE, "the group has rebalanced; read again"),
    ErrorCode.FENCED_MEMBER_EPOCH: (ILLEGAL_STATE, "the group has rebalanced; read again"),
    ErrorCode.REBALANCE_IN_PROGRESS: (ILLEGAL_STATE, "the group is rebalancing; try again"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        ILLEGAL_STATE,
        "the group's other members use another protocol; choose another group",
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (ILLEGAL_STATE, ""),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (TOO_MANY, ""),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (TOO_MANY, ""),
    ErrorCode.MESSAGE_TOO_LARGE: (41302, "see max.message.bytes of the topic"),
    ErrorCode.RECORD_LIST_TOO_LARGE: (41302, "send fewer records at once"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (41303, ""),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        OFFSET_OUT_OF_RANGE,
        "GET /topics/{topic}/partitions/{partition}/offsets tells the ends",
    ),
}
_UNPROCESSABLE: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
# Nobody answered in time, however often that was tried already: for whoever asks us it may pass.
_NO_RESPONSE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})
RETRY_AFTER: Final = ((b"retry-after", b"1"),)


def is_transient(error: HeadraceError) -> bool:
    """Whether the same request may well work a little later."""
    return error.retriable or error.code in _NO_RESPONSE


def no_partition(topic: str, partition: int, count: int) -> HttpError:
    """The answer to a request for a partition that the topic has not."""
    return HttpError(
        PARTITION_NOT_FOUND,
        f"{topic} has no partition {partition}",
        hint=f"its partitions are 0 to {count - 1}",
        kafka_error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
    )


def http_error_of(error: HeadraceError) -> HttpError:
    """The response to a request that a `HeadraceError` has stopped."""
    if isinstance(error, HttpError):
        return error
    code, message = error.code, error.message or error.code.name
    known = _BY_KAFKA_CODE.get(code)
    if known is not None:
        return HttpError(known[0], message, hint=error.hint or known[1], kafka_error=code.name)
    if code in _UNPROCESSABLE:
        return HttpError(422, message, hint=error.hint, kafka_error=code.name)
    if is_transient(error):
        hint = error.hint or "this may pass: send the request again"
        return HttpError(RETRY, message, hint=hint, kafka_error=code.name, headers=RETRY_AFTER)
    return HttpError(UNEXPECTED, message, hint=error.hint, kafka_error=code.name)
