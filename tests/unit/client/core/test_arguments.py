"""What may be sent, and how the rest is refused."""

from typing import Any

import pytest

from headrace.client.core.arguments import check_record

GOOD: dict[str, Any] = {
    "topic": "t",
    "value": b"v",
    "key": None,
    "headers": (),
    "partition": None,
    "timestamp_ms": None,
}


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("topic", b"t", "topic must be a str, not bytes"),
        ("value", "text", "value must be bytes or None, not str: encode it first"),
        ("value", 7, "value must be bytes or None, not int"),
        ("value", memoryview(b"12345678").cast("I"), "value must be a memoryview of single bytes"),
        ("key", "text", "key must be bytes or None, not str: encode it first"),
        ("headers", {"a": b"b"}, "headers must be a list of .* not dict"),
        ("headers", ["ab"], "headers must be .* pairs, not 'ab'"),
        ("headers", [("a", "b")], "the value of 'a' in headers must be bytes or None, not str"),
        ("headers", [(b"a", b"b")], "a name in headers must be a str, not bytes"),
        ("partition", "0", "partition must be an int or None, not str"),
        ("timestamp_ms", "2024", "timestamp_ms must be an int or None, not str"),
        ("timestamp_ms", 1.5, "timestamp_ms must be an int or None, not float"),
    ],
)
def test_a_wrong_type_is_refused_by_the_argument_s_name(
    name: str, given: Any, complaint: str
) -> None:
    with pytest.raises(TypeError, match=complaint):
        check_record(**{**GOOD, name: given})


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63])
def test_a_time_that_no_batch_can_hold_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match=f"not {timestamp_ms}"):
        check_record(**{**GOOD, "timestamp_ms": timestamp_ms})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("value", None),
        ("value", bytearray(b"v")),
        ("value", memoryview(b"v")),
        ("key", b""),
        ("headers", [("a", b"b"), ("a", None)]),
        ("headers", (("a", memoryview(b"b")),)),
        ("partition", 0),
        ("timestamp_ms", 2**63 - 1),
    ],
)
def test_what_can_be_encoded_is_taken(name: str, given: Any) -> None:
    check_record(**{**GOOD, name: given})
