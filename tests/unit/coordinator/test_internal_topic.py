"""Which partition of `__consumer_offsets` a group belongs to."""

import pytest

from headrace.coordinator.internal_topic import partition_for, string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("g", 103),
        ("hello", 99_162_322),
        ("\N{GRINNING FACE}", 1_772_899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_names_are_hashed_as_java_does(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@pytest.mark.parametrize(
    ("group", "expected"), [("hello", 22), ("g", 3), ("polygenelubricants", 0), ("console", 9)]
)
def test_a_group_has_the_coordinator_that_kafka_would_give_it(group: str, expected: int) -> None:
    assert partition_for(group, 50) == expected
