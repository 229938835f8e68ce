"""ElectLeaders: have partitions choose a leader again."""

from headrace.protocol.fields import array, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32())


@message(api_key=43, versions=(0, 2), flexible_from=2)
class ElectLeadersRequest(Message):
    """Partitions (null: all) and the kind of election."""

    election_type: int = int8(since=1, default=0)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable=True, default=None
    )
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


class ReplicaElectionResult(Struct):
    """The outcome for one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(api_key=43, versions=(0, 2), flexible_from=2)
class ElectLeadersResponse(Message):
    """The outcome, per partition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
