"""Content types: what is taken, what is given, and why not."""

import pytest

from headrace.web import media
from headrace.web.errors import HttpError


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        (None, media.JSON),
        (b"*/*", media.JSON),
        (b"application/*", media.JSON),
        (b"application/json", media.JSON),
        (b"application/vnd.kafka.binary.v2+json", media.KAFKA_BINARY),
        (b"application/vnd.kafka.v2+json; q=0.9, application/json; q=0.1", media.KAFKA),
        (b"text/html, application/vnd.kafka.json.v2+json;q=0.2, */*;q=0.1", media.KAFKA_JSON),
        (b"text/html,*/*;q=0.8", media.JSON),
        (b"APPLICATION/JSON", media.JSON),
    ],
)
def test_the_client_s_preference_decides_then_ours(accept: bytes | None, given: str) -> None:
    assert media.response_type(accept, media.RECORDS) == given


@pytest.mark.parametrize("accept", [b"text/html", b"application/json;q=0", b"", b";;;,,q=x"])
def test_what_is_not_offered_cannot_be_had(accept: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        media.response_type(accept, media.METADATA)
    assert refused.value.status == 406
    assert media.JSON in refused.value.hint


def test_parameters_of_a_content_type_do_not_matter() -> None:
    assert media.content_type(b"Application/JSON; charset=utf-8", media.METADATA) == media.JSON


def test_a_schema_is_refused_by_name() -> None:
    with pytest.raises(HttpError, match="schema registry") as refused:
        media.content_type(b"application/vnd.kafka.protobuf.v2+json", media.RECORDS)
    assert refused.value.error_code == 41501
