"""CreateTopics: make new topics."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, boolean, int8, int16, int32, string, uuid
from headrace.protocol.message import Message, Struct, message


class CreatableReplicaAssignment(Struct):
    """Replicas of one partition, chosen by hand."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Struct):
    """One config of the new topic."""

    name: str = string()
    value: str | None = string(nullable=True, default=None)


class CreatableTopic(Struct):
    """One topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(api_key=19, versions=(2, 7), flexible_from=5)
class CreateTopicsRequest(Message):
    """Topics to create, or only to check."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


class CreatableTopicConfigs(Struct):
    """One config the topic ended up with."""

    name: str = string()
    value: str | None = string(nullable=True, default=None)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    topic_id: UUID = uuid(since=7, default=NULL_UUID)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    topic_config_error_code: int = int16(since=5, tag=0, default=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable=True, default=()
    )


@message(api_key=19, versions=(2, 7), flexible_from=5)
class CreateTopicsResponse(Message):
    """The outcome, per topic."""

    throttle_time_ms: int = int32(default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
