"""Metadata: brokers, topics, partitions and who leads them."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, boolean, int16, int32, string, uuid
from headrace.protocol.message import Message, Struct, message


class MetadataRequestTopic(Struct):
    """One topic asked for, by name or id."""

    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    name: str | None = string(nullable=10, default=None)


@message(api_key=3, versions=(0, 13), flexible_from=9)
class MetadataRequest(Message):
    """Which topics to describe; null means all from v1 on."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = boolean(since=8, default=False)


class MetadataResponseBroker(Struct):
    """A broker and its address on the listener asked."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=True, default=None)


class MetadataResponsePartition(Struct):
    """One partition: leader, replicas, in-sync set."""

    error_code: int = int16(default=0)
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), since=5, default=())


class MetadataResponseTopic(Struct):
    """One topic, with its partitions or its error."""

    error_code: int = int16(default=0)
    name: str | None = string(nullable=12, default=None)
    topic_id: UUID = uuid(since=10, default=NULL_UUID)
    is_internal: bool = boolean(since=1, default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-2147483648)


@message(api_key=3, versions=(0, 13), flexible_from=9)
class MetadataResponse(Message):
    """The cluster as this broker sees it."""

    throttle_time_ms: int = int32(since=3, default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=True, default=None)
    controller_id: int = int32(since=1, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-2147483648)
    error_code: int = int16(since=13, default=0)
