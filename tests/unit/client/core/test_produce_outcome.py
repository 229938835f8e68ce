"""What is known of records after a produce, and that a producer acts upon it."""

import pytest

from headrace.client import RecordMetadata
from headrace.client.core.errors import SenderFailed
from headrace.client.core.produce_outcome import (
    ProduceOutcome,
    failure_outcome,
    response_outcome,
)
from headrace.core.errors import (
    RETRIABLE_CODES,
    ApiError,
    ErrorCode,
    HeadraceError,
    UnencodableMessage,
)
from headrace.network.errors import (
    BadFrame,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApi,
)
from tests.unit.client.core.test_accumulator import Bench, header_of

WRITTEN, NOT_WRITTEN, UNKNOWN = ProduceOutcome

# What a broker can say after the append, or without knowing whether there was one.
AFTER_THE_APPEND = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
# After these an idempotent producer starts over with a new epoch instead of failing.
STARTS_OVER = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


@pytest.mark.parametrize("code", AFTER_THE_APPEND, ids=lambda code: code.name)
def test_what_may_be_said_after_the_append_is_unknown(code: ErrorCode) -> None:
    assert response_outcome(code) is UNKNOWN


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_an_error_with_an_offset_never_means_not_written(code: ErrorCode) -> None:
    assert response_outcome(code, 7) is not NOT_WRITTEN


def test_a_code_that_no_list_names_is_unknown() -> None:
    assert response_outcome(ErrorCode.SNAPSHOT_NOT_FOUND) is UNKNOWN
    assert response_outcome(30_000) is UNKNOWN


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        (ConnectFailed("refused"), NOT_WRITTEN),
        (UnsupportedApi("no such version"), NOT_WRITTEN),
        (UnencodableMessage("too large"), NOT_WRITTEN),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), NOT_WRITTEN),
        (ConnectionLost("reset"), UNKNOWN),
        (RequestTimedOut("late"), UNKNOWN),
        (ClientClosed("connection"), UNKNOWN),
        (BadFrame(-1, 10), UNKNOWN),
        (SenderFailed("a fault"), UNKNOWN),
        (ApiError(ErrorCode.UNKNOWN_SERVER_ERROR), UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_that_failed(failure: HeadraceError, known: ProduceOutcome) -> None:
    assert failure_outcome(failure) is known


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_a_producer_uses_a_sequence_again_only_if_nothing_was_written(code: ErrorCode) -> None:
    """A broker takes other records under a sequence that it has for these, and drops them."""
    bench = Bench()
    bench.introduce()
    bench.send("a")
    (call,) = bench.drain()
    assert header_of(call).base_sequence == 1
    bench.answer(call, error_code=code)
    known = response_outcome(code)
    if known is WRITTEN:
        assert bench.told == {"a": RecordMetadata("t", 0, -1, 5)}
        return
    retried = code in RETRIABLE_CODES or code in STARTS_OVER
    assert ("a" in bench.told) is not retried
    if retried:
        return
    bench.send("b")
    (call,) = bench.drain()
    assert header_of(call).base_sequence == (1 if known is NOT_WRITTEN else 2)


def test_an_attempt_that_may_have_succeeded_is_not_forgotten_at_the_next_refusal() -> None:
    bench = Bench()
    bench.introduce()
    bench.send("a")
    bench.sending.on_response(bench.drain()[0], ConnectionLost("reset"), bench.clock.ms)
    bench.later(1000)
    bench.answer(bench.drain()[0], error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(bench.told["a"], ApiError)
    bench.send("b")
    assert header_of(bench.drain()[0]).base_sequence == 2
