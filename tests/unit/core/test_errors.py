"""Every error knows its code, whether to retry, and what to say."""

from __future__ import annotations

import pytest

from headrace.core.errors import (
    ApiError,
    CorruptBatch,
    ErrorCode,
    HeadraceError,
    InvalidConfig,
    InvalidRecord,
    MalformedMessage,
    OffsetOutOfRange,
    StartupRefused,
    StorageError,
)


def test_codes_are_dense_so_none_is_forgotten() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ApiError(ErrorCode.TOPIC_ALREADY_EXISTS), ErrorCode.TOPIC_ALREADY_EXISTS, False),
        (InvalidRecord("bad"), ErrorCode.INVALID_RECORD, False),
        (OffsetOutOfRange("far"), ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (InvalidConfig("no"), ErrorCode.INVALID_CONFIG, False),
        (MalformedMessage("cut"), ErrorCode.INVALID_REQUEST, False),
        (CorruptBatch("crc"), ErrorCode.CORRUPT_MESSAGE, True),
        (StorageError("full"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (StartupRefused("locked"), ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_an_error_knows_its_code(error: HeadraceError, code: ErrorCode, retriable: bool) -> None:
    assert error.code is code
    assert error.retriable is retriable


def test_an_api_error_without_words_is_named_after_its_code() -> None:
    assert str(ApiError(ErrorCode.REQUEST_TIMED_OUT)) == "REQUEST_TIMED_OUT"
    assert ApiError(ErrorCode.REQUEST_TIMED_OUT, "late").message == "late"


def test_an_invalid_record_names_the_records_at_fault() -> None:
    error = InvalidRecord("no key", [(3, "null key")])
    assert error.record_errors == [(3, "null key")]


def test_a_hint_can_be_given_or_comes_with_the_kind() -> None:
    assert "free space" in StorageError("x").hint
    assert StorageError("x", hint="mount it").hint == "mount it"
