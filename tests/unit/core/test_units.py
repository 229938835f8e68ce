"""Durations and sizes in place of numbers."""

import pytest

from headrace.core.units import plain_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1h", "3600000"), ("7d", "604800000"), ("1d12h", "129600000"), ("90m", "5400000"),
     ("30s", "30000"), ("250ms", "250"), ("1H", "3600000")],
)  # fmt: skip
def test_a_key_in_milliseconds_takes_a_duration(text: str, number: str) -> None:
    assert plain_number("retention.ms", text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("10MB", "10000000"), ("1GiB", "1073741824"), ("512 kib", "524288")]
)
@pytest.mark.parametrize("name", ["retention.bytes", "http.max.body.bytes"])
def test_a_key_in_bytes_takes_a_size(name: str, text: str, number: str) -> None:
    assert plain_number(name, text) == number


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", "-1"), ("retention.ms", "60000"), ("retention.ms", ""),
     ("retention.ms", "1 fortnight"), ("retention.bytes", "1h"), ("retention.ms", "10MB"),
     ("log.retention.hours", "1h"), ("cleanup.policy", "1h")],
)  # fmt: skip
def test_anything_else_stays_as_it_is(name: str, text: str) -> None:
    assert plain_number(name, text) == text
