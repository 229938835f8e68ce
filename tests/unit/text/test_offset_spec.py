"""Places to read from, as people write them."""

import pytest

from headrace.client.core.models import EARLIEST, LATEST, at_time
from headrace.text.offset_spec import CommittedByGroup, TextOffsetSpec, parse_offset_spec
from headrace.text.tokenizer import BadLine, Tokenizer

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"BEGINNING", EARLIEST),
        (b"end", LATEST),
        (b"42", 42),
        (b"@1500", at_time(1500)),
        (b"-15m", at_time(NOW_MS - 900_000)),
        (b"-2h", at_time(NOW_MS - 7_200_000)),
        (b"1970-01-01T00:00:02Z", at_time(2000)),
        (b"1970-01-01T01:00:02+01:00", at_time(2000)),
        (b"1970-01-01T00:00:02", at_time(2000)),
        (b"GROUP billing", CommittedByGroup("billing")),
    ],
)
def test_a_place_is_an_end_an_offset_a_time_or_a_group(text: bytes, place: TextOffsetSpec) -> None:
    assert parse_offset_spec(Tokenizer(text), NOW_MS) == place


@pytest.mark.parametrize("text", [b"", b"yesterday", b"-5", b"@x", b"GROUP", b"1970-13-01"])
def test_anything_else_is_refused_with_what_may_be_written(text: bytes) -> None:
    with pytest.raises(BadLine):
        parse_offset_spec(Tokenizer(text), NOW_MS)
