"""Admin operations about topics and the cluster."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from headrace.client.core.errors import raise_for
from headrace.client.core.lookups import raise_for_topic, refresh_metadata, topic_error
from headrace.client.core.models import (
    BrokerDescription,
    ClusterDescription,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from headrace.client.core.operations import ClientOperation, Session, Sleep, retrying, send_to_any
from headrace.core.errors import ErrorCode
from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.messages.metadata import MetadataResponseTopic

_LOOKS_MAX = 8


def create_topics(
    session: Session, topics: Sequence[NewTopic], *, validate_only: bool
) -> ClientOperation[dict[str, UUID]]:
    """Create topics; returns their ids (all zero from old brokers)."""
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=session.settings.request_timeout_ms,
        validate_only=validate_only,
    )

    def attempt() -> ClientOperation[dict[str, UUID]]:
        response = yield from send_to_any(session, request, CreateTopicsResponse)
        for result in response.topics:
            raise_for(result.error_code, result.error_message, f"create topic {result.name!r}")
        counts = {result.name: max(result.num_partitions, 1) for result in response.topics}
        if not validate_only:
            yield from _until_visible(session, counts)
        return {result.name: result.topic_id for result in response.topics}

    return (yield from retrying(session, attempt))


def _until_visible(session: Session, counts: Mapping[str, int]) -> ClientOperation[None]:
    """Wait a little until brokers tell of what the controller has made, leaders included.

    Without it a reader made next might be told that its topic does not exist.
    """
    cluster = session.cluster
    for attempt in range(1, _LOOKS_MAX + 1):
        yield from refresh_metadata(session, counts)
        if all(
            cluster.leader(TopicPartition(name, number)) is not None
            for name, count in counts.items()
            for number in range(count)
        ):
            return
        yield Sleep(session.backoff.delay_ms(attempt) / 4)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def delete_topics(session: Session, topics: Collection[str | UUID]) -> ClientOperation[None]:
    """Delete topics by name or id."""
    names = [topic for topic in topics if isinstance(topic, str)]
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=topic, topic_id=NO_TOPIC_ID)
            if isinstance(topic, str)
            else DeleteTopicState(name=None, topic_id=topic)
            for topic in topics
        ],
        topic_names=names,
        timeout_ms=session.settings.request_timeout_ms,
    )
    # Before version 6 topics have names only.
    version_min = 6 if len(names) < len(topics) else 0

    def attempt() -> ClientOperation[None]:
        response = yield from send_to_any(
            session, request, DeleteTopicsResponse, version_min=version_min
        )
        session.cluster.mark_stale(names)
        for result in response.responses:
            what = f"delete topic {result.name or result.topic_id!s}"
            raise_for_topic(result.error_code, result.error_message, result.name or "", what)

    yield from retrying(session, attempt)


def list_topics(session: Session, *, internal: bool) -> ClientOperation[list[TopicDescription]]:
    """Every topic that may be seen, by name."""

    def attempt() -> ClientOperation[list[TopicDescription]]:
        response = yield from refresh_metadata(session, None)
        found = [
            _description(topic)
            for topic in response.topics
            if not topic.error_code and (internal or not topic.is_internal)
        ]
        return sorted(found, key=lambda topic: topic.name)

    return (yield from retrying(session, attempt))


def describe_topics(
    session: Session, names: Collection[str]
) -> ClientOperation[dict[str, TopicDescription]]:
    """These topics as they are now; a missing one is an error."""

    def attempt() -> ClientOperation[dict[str, TopicDescription]]:
        response = yield from refresh_metadata(session, names)
        found: dict[str, TopicDescription] = {}
        for topic in response.topics:
            if topic.error_code:
                code = session.cluster.topic_errors.get(
                    topic.name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                raise topic_error(code, topic.name or "", may_appear=False)
            found[topic.name or ""] = _description(topic)
        return found

    return (yield from retrying(session, attempt))


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda part: part.partition_index)
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            PartitionDescription(
                partition=part.partition_index,
                leader=part.leader_id,
                leader_epoch=part.leader_epoch,
                replicas=tuple(part.replica_nodes),
                in_sync=tuple(part.isr_nodes),
                offline=tuple(part.offline_replicas),
            )
            for part in partitions
        ],
    )


def create_partitions(
    session: Session,
    counts: Mapping[str, int],
    assignments: Mapping[str, Iterable[Sequence[int]]],
    *,
    validate_only: bool,
) -> ClientOperation[None]:
    """Raise topics to a total number of partitions."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=[
                    CreatePartitionsAssignment(broker_ids=list(brokers))
                    for brokers in assignments[name]
                ]
                if name in assignments
                else None,
            )
            for name, count in counts.items()
        ],
        timeout_ms=session.settings.request_timeout_ms,
        validate_only=validate_only,
    )

    def attempt() -> ClientOperation[None]:
        response = yield from send_to_any(session, request, CreatePartitionsResponse)
        for result in response.results:
            what = f"partitions of {result.name!r}"
            raise_for_topic(result.error_code, result.error_message, result.name, what)
        if not validate_only:
            yield from _until_visible(session, counts)

    yield from retrying(session, attempt)


def describe_cluster(session: Session) -> ClientOperation[ClusterDescription]:
    """The cluster's id, brokers and controller."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)

    def attempt() -> ClientOperation[ClusterDescription]:
        response = yield from send_to_any(session, request, DescribeClusterResponse)
        raise_for(response.error_code, response.error_message, "describe cluster")
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=[
                BrokerDescription(broker.broker_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            ],
        )

    return (yield from retrying(session, attempt))
