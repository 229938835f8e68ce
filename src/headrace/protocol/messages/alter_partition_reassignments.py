"""AlterPartitionReassignments: move replicas, or stop moving them."""

from headrace.protocol.fields import array, boolean, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class ReassignablePartition(Struct):
    """The wanted replicas of one partition; null cancels a move."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable=True, default=None)


class ReassignableTopic(Struct):
    """One topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(api_key=45, versions=(0, 1), flexible_from=0)
class AlterPartitionReassignmentsRequest(Message):
    """The wanted replicas."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


class ReassignableTopicResponse(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(api_key=45, versions=(0, 1), flexible_from=0)
class AlterPartitionReassignmentsResponse(Message):
    """The outcome, per partition."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
