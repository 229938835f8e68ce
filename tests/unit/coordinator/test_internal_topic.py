"""Which partition of `__consumer_offsets` a group belongs to."""

from typing import cast
from uuid import UUID

import pytest

from headrace.coordinator.internal_topic import InternalTopic, partition_for, string_hash
from headrace.core.ids import NodeId
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.image import Image, PartitionRegistration, Topic


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


def test_a_key_belongs_nowhere_while_there_is_no_topic() -> None:
    """How many partitions it will have is not known before the controller has created it."""
    registration = PartitionRegistration(NodeId(0), 0, 0, (0,), (0,))
    made = Topic("groups", UUID(int=7, version=4), (registration,) * 50)
    nobody = cast(AutoTopicCreationManager, None)
    before = InternalTopic(lambda: Image("c"), nobody, "groups")
    after = InternalTopic(lambda: Image("c", topics={"groups": made}), nobody, "groups")
    assert (before.partition_of("hello"), after.partition_of("hello")) == (None, 22)
