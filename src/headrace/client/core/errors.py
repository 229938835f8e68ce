"""What can go wrong in a call of the client, above the connections that it uses.

    FinalError (headrace.network.errors: not to be retried, whatever its code)
      CallTimedOut           a whole call with its retries took too long
      DeliveryTimedOut       records not acknowledged within delivery_timeout_ms
      SenderFailed           a fault in the producer itself
      BufferFull             send() waited block_ms_max for room
      CommitFailed           the group has moved on without this member
      NoOffset               nothing committed, and offset_reset is "none"

Errors that a broker reports are `ApiError`s with the broker's own code; `GroupInUse` is the one
that says in plain words why the offsets of a group stay where they are.
"""

from headrace.core.errors import ApiError, ErrorCode, known_code
from headrace.network.errors import FinalError


class CallTimedOut(FinalError):
    """A call was retried until its time was up; the text has the last failure."""

    code = ErrorCode.REQUEST_TIMED_OUT


class DeliveryTimedOut(FinalError):
    """Records were not acknowledged in time; they may or may not have been written."""

    code = ErrorCode.REQUEST_TIMED_OUT


class SenderFailed(FinalError):
    """A fault in the producer itself; what was on its way may or may not have arrived."""


class BufferFull(FinalError):
    """The producer's buffer stayed full for as long as send() may wait."""

    code = ErrorCode.REQUEST_TIMED_OUT


class CommitFailed(FinalError):
    """The offsets were not committed: the partitions may belong to another member by now."""

    default_hint = (
        "poll() to rejoin the group; if the program was away too long between polls, raise "
        "max_poll_interval_ms or ask for fewer records"
    )

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoOffset(FinalError):
    """The group has no offset for a partition, and was told not to choose one."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    default_hint = "seek(), commit an offset first, or set offset_reset to 'earliest' or 'latest'"


class GroupInUse(ApiError):
    """Members are reading: their offsets are theirs to move."""

    default_hint = "stop the members first; `headrace group describe` shows who they are"


_HINTS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 characters: ASCII letters, "
    "digits, '.', '_' and '-'",
}


def raise_for(code: int, message: str | None, what: str) -> None:
    """Raise the broker's error, if it reported one, naming what was asked."""
    if code:
        raise error_for(code, message, what)


def error_for(code: int, message: str | None, what: str) -> ApiError:
    """The exception for a code reported by a broker."""
    known = known_code(code)
    detail = message or known.name.replace("_", " ").lower()
    # Brokers that say nothing themselves, as in answers of metadata, leave people guessing.
    hint = _HINTS.get(known) if message is None else None
    return ApiError(known, f"{what}: {detail}", hint=hint)
