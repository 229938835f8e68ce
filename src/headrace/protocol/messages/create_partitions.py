"""CreatePartitions: give topics more partitions."""

from headrace.protocol.fields import array, boolean, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class CreatePartitionsAssignment(Struct):
    """Replicas of one new partition, chosen by hand."""

    broker_ids: list[int] = array(int32())


class CreatePartitionsTopic(Struct):
    """One topic that grows."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable=True, default=None
    )


@message(api_key=37, versions=(0, 3), flexible_from=2)
class CreatePartitionsRequest(Message):
    """The topics and their new partition counts."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


@message(api_key=37, versions=(0, 3), flexible_from=2)
class CreatePartitionsResponse(Message):
    """The outcome, per topic."""

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
