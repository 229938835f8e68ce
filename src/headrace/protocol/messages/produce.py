"""Produce: append record batches to partitions."""

from uuid import UUID

from headrace.core.files import Buffer
from headrace.protocol.fields import (
    NULL_UUID,
    array,
    batches,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from headrace.protocol.message import Message, Struct, message


class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: int = int32()
    records: Buffer | None = batches(nullable=True, default=None)


class TopicProduceData(Struct):
    """One topic, by name up to v12 and by id from v13."""

    name: str = string(until=12, default="")
    topic_id: UUID = uuid(since=13, default=NULL_UUID)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(api_key=0, versions=(3, 13), flexible_from=9)
class ProduceRequest(Message):
    """Batches to append, by topic and partition; `acks` 0 expects no answer."""

    transactional_id: str | None = string(nullable=True, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """One record at fault (KIP-467)."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=True, default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads now, for a client that asked the wrong node (KIP-951)."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """The outcome for one partition."""

    index: int = int32()
    error_code: int = int16(default=0)
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, default=()
    )
    error_message: str | None = string(since=8, nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, since=10, tag=0, default=LeaderIdAndEpoch
    )


class TopicProduceResponse(Struct):
    """The outcome for one topic."""

    name: str = string(until=12, default="")
    topic_id: UUID = uuid(since=13, default=NULL_UUID)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """Address of a node named in the answer (KIP-951)."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


@message(api_key=0, versions=(3, 13), flexible_from=9)
class ProduceResponse(Message):
    """Where each batch landed, or why it did not."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0, default=())
