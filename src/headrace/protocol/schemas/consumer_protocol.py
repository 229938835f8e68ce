"""What members of a classic consumer group send each other, opaque to the broker."""

from typing import Final

from headrace.protocol.fields import array, binary, int32, string
from headrace.protocol.message import Message, Struct, message

METADATA_ITEMS_MAX: Final = 32_000
"""Topics and partitions that a coordinator reads of one member; with more it counts as opaque."""


class OwnedPartitions(Struct):
    """Partitions of one topic that the member owns."""

    topic: str = string()
    partitions: list[int] = array(int32())


@message(versions=(0, 3), flexible_from=None)
class ConsumerProtocolSubscription(Message):
    """What a member wants to read, and what it owns now."""

    topics: list[str] = array(string())
    user_data: bytes | None = binary(nullable=True, default=None)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, since=1, default=())
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string(since=3, nullable=True, default=None)


class AssignedPartitions(Struct):
    """Partitions of one topic given to the member."""

    topic: str = string()
    partitions: list[int] = array(int32())


@message(versions=(0, 3), flexible_from=None)
class ConsumerProtocolAssignment(Message):
    """What a member shall read."""

    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: bytes | None = binary(nullable=True, default=None)
