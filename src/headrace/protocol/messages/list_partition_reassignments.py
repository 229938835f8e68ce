"""ListPartitionReassignments: the moves now under way."""

from headrace.protocol.fields import array, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


@message(api_key=46, versions=(0, 0), flexible_from=0)
class ListPartitionReassignmentsRequest(Message):
    """Partitions of interest; null means all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=True, default=None
    )


class OngoingPartitionReassignment(Struct):
    """The move of one partition."""

    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


class OngoingTopicReassignment(Struct):
    """The moves in one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(api_key=46, versions=(0, 0), flexible_from=0)
class ListPartitionReassignmentsResponse(Message):
    """The moves."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
