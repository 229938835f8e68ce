"""Fetch: read record batches, by clients and by following replicas."""

from uuid import UUID

from headrace.core.files import Buffer
from headrace.protocol.fields import (
    NULL_UUID,
    array,
    batches,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from headrace.protocol.message import Message, Struct, message


class ReplicaState(Struct):
    """Which replica fetches; a consumer is -1."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    """Where to read in one partition, and how much."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(since=17, tag=0, default=NULL_UUID)
    high_watermark: int = int64(since=18, tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    """One topic, by name up to v12 and by id from v13."""

    topic: str = string(until=12, default="")
    topic_id: UUID = uuid(since=13, default=NULL_UUID)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = string(until=12, default="")
    topic_id: UUID = uuid(since=13, default=NULL_UUID)
    partitions: list[int] = array(int32())


@message(api_key=1, versions=(4, 18), flexible_from=12)
class FetchRequest(Message):
    """What to read from where, within a fetch session or without one (KIP-227)."""

    cluster_id: str | None = string(since=12, tag=0, nullable=True, default=None)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1, default=ReplicaState)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8(default=0)
    session_id: int = int32(since=7, default=0)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7, default=())
    rack_id: str = string(since=11, default="")


class EpochEndOffset(Struct):
    """Where the reader's log and ours part ways (KIP-320)."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    """Who leads now, for a client that asked the wrong node (KIP-951)."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    """The snapshot to read instead, on the metadata log."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """A transaction whose records a committed read skips."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """What was found in one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset = struct(
        EpochEndOffset, since=12, tag=0, default=EpochEndOffset
    )
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, since=12, tag=1, default=LeaderIdAndEpoch
    )
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2, default=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, nullable=True, default=None
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Buffer | None = batches(nullable=True, default=None)


class FetchableTopicResponse(Struct):
    """What was found in one topic."""

    topic: str = string(until=12, default="")
    topic_id: UUID = uuid(since=13, default=NULL_UUID)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """Address of a node named in the answer (KIP-951)."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


@message(api_key=1, versions=(4, 18), flexible_from=12)
class FetchResponse(Message):
    """The batches found, with the offsets that bound them."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=7, default=0)
    session_id: int = int32(since=7, default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0, default=())
