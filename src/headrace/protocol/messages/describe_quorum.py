"""DescribeQuorum: the state of the metadata quorum."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, int16, int32, int64, string, uint16, uuid
from headrace.protocol.message import Message, Struct, message


class PartitionDataRequest(Struct):
    """One partition asked for."""

    partition_index: int = int32()


class TopicDataRequest(Struct):
    """One topic asked for."""

    topic_name: str = string()
    partitions: list[PartitionDataRequest] = array(PartitionDataRequest)


@message(api_key=55, versions=(0, 2), flexible_from=0)
class DescribeQuorumRequest(Message):
    """The partitions, in practice only the metadata log."""

    topics: list[TopicDataRequest] = array(TopicDataRequest)


class ReplicaState(Struct):
    """How far one replica has come."""

    replica_id: int = int32()
    replica_directory_id: UUID = uuid(since=2, default=NULL_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1)
    last_caught_up_timestamp: int = int64(since=1, default=-1)


class PartitionData(Struct):
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(since=2, nullable=True, default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicData(Struct):
    """One topic of the quorum."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Listener(Struct):
    """Where the node can be reached."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    """One node of the quorum."""

    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@message(api_key=55, versions=(0, 2), flexible_from=0)
class DescribeQuorumResponse(Message):
    """Leader, voters and observers."""

    error_code: int = int16(default=0)
    error_message: str | None = string(since=2, nullable=True, default=None)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, since=2, default=())
