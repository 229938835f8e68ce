"""What members of a classic group tell each other through the broker, which does not look.

A version number in two bytes, then the message in that version. Readers take any version, as
newer ones only add fields at the end.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from headrace.client.core.assignors import JoinedMember
from headrace.core.errors import MalformedMessage
from headrace.core.files import Buffer
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.join_group import JoinGroupResponseMember
from headrace.protocol.schemas.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
)

M = TypeVar("M", bound=Message)
_SUBSCRIPTION_VERSION = 3
# Later versions have the same fields: what every member can read is best.
_ASSIGNMENT_VERSION = 0


def encode_subscription(
    topics: Collection[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str,
) -> bytes:
    """What we want, and what we have of which generation."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack or None,
    )
    return _with_version(message, _SUBSCRIPTION_VERSION)


def decode_member(member: JoinGroupResponseMember) -> JoinedMember:
    """A member of the generation, as its subscription describes it."""
    message = _read(ConsumerProtocolSubscription, member.metadata)
    return JoinedMember(
        member_id=member.member_id,
        topics=frozenset(message.topics),
        instance_id=member.group_instance_id,
        owned=tuple(
            TopicPartition(owned.topic, number)
            for owned in message.owned_partitions
            for number in owned.partitions
        ),
        generation=message.generation_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """One member's share."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
    return _with_version(message, _ASSIGNMENT_VERSION)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """A share; no bytes at all mean that there is none."""
    if not len(data):
        return []
    message = _read(ConsumerProtocolAssignment, data)
    return sorted(
        TopicPartition(topic.topic, number)
        for topic in message.assigned_partitions
        for number in topic.partitions
    )


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _with_version(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + message.encode(version)


def _read(kind: type[M], data: Buffer) -> M:
    if len(data) < 2:
        raise MalformedMessage(f"{kind.__name__}: {len(data)} bytes are too few for a version")
    version = min(int.from_bytes(data[:2], "big"), kind.schema.highest_version)
    return kind.decode_from(data, version, 2)[0]
