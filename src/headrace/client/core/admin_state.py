"""Admin flows about configs, records and what lies on disk."""

from collections.abc import Collection, Mapping, Sequence

from headrace.client.core.failures import error_for, raise_for
from headrace.client.core.flows import Ask, AskMany, Flow, Session, ask, ask_any, retrying
from headrace.client.core.lookups import per_partition, raise_for_topic, refresh_metadata
from headrace.client.core.models import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    LogDirDescription,
    ProducerDescription,
    ReplicaSize,
    ResourceType,
)
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_DEFAULT_SOURCE = 5
_OF_ONE_BROKER = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})


def _home(resource: ConfigResource) -> NodeId | None:
    """The one broker that can answer for a resource, None where any can."""
    if resource.type in _OF_ONE_BROKER and resource.name.isdecimal():
        return NodeId(int(resource.name))
    return None


def _by_home(resources: Collection[ConfigResource]) -> dict[NodeId | None, list[ConfigResource]]:
    homes: dict[NodeId | None, list[ConfigResource]] = {}
    for resource in resources:
        homes.setdefault(_home(resource), []).append(resource)
    return homes


def describe_configs(
    session: Session,
    resources: Collection[ConfigResource],
    *,
    keys: Sequence[str] | None,
    documentation: bool,
) -> Flow[dict[ConfigResource, dict[str, ConfigEntry]]]:
    """All configs of each resource (or the given keys), with their sources."""

    def attempt() -> Flow[dict[ConfigResource, dict[str, ConfigEntry]]]:
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for home, group in _by_home(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in group
                ],
                include_synonyms=True,
                include_documentation=documentation,
            )
            if home is None:
                response = yield from ask_any(session, request, DescribeConfigsResponse)
            else:
                yield from _know_brokers(session)
                response = yield from ask(session, home, request, DescribeConfigsResponse)
            for result in response.results:
                name = result.resource_name
                what = f"configs of {name!r}"
                raise_for_topic(result.error_code, result.error_message, name, what)
                key = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                found[key] = {entry.name: _entry(entry) for entry in result.configs}
        return found

    return (yield from retrying(session, attempt))


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=entry.config_source,
        is_default=entry.config_source == _DEFAULT_SOURCE,
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        documentation=entry.documentation,
        synonyms=[(name.name, name.value, name.source) for name in entry.synonyms],
    )


def _know_brokers(session: Session) -> Flow[None]:
    if not session.cluster.brokers:
        yield from refresh_metadata(session, [])


def alter_configs(
    session: Session,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool,
) -> Flow[None]:
    """Change the given keys and leave the others as they are."""

    def attempt() -> Flow[None]:
        for home, group in _by_home(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[_alteration(resource, changes[resource]) for resource in group],
                validate_only=validate_only,
            )
            if home is None:
                response = yield from ask_any(session, request, IncrementalAlterConfigsResponse)
            else:
                yield from _know_brokers(session)
                response = yield from ask(session, home, request, IncrementalAlterConfigsResponse)
            for result in response.responses:
                name = result.resource_name
                what = f"configs of {name!r}"
                raise_for_topic(result.error_code, result.error_message, name, what)

    yield from retrying(session, attempt)


def _alteration(resource: ConfigResource, changes: Sequence[ConfigChange]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes
        ],
    )


def delete_records(
    session: Session, before: Mapping[TopicPartition, int]
) -> Flow[dict[TopicPartition, int]]:
    """Drop records below the given offsets (-1: all); returns where each log starts now."""
    limit = session.settings.request_timeout_ms

    def make_ask(node: NodeId, group: Sequence[TopicPartition]) -> Ask:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for partition in group:
            topics.setdefault(partition.topic, []).append(
                DeleteRecordsPartition(
                    partition_index=partition.partition, offset=before[partition]
                )
            )
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=name, partitions=parts) for name, parts in topics.items()
            ],
            timeout_ms=limit,
        )
        return Ask(node, request, DeleteRecordsResponse, limit)

    return (yield from per_partition(session, before, make_ask, _read_deletions))


def _read_deletions(answer: Message) -> dict[TopicPartition, int | HeadraceError]:
    assert isinstance(answer, DeleteRecordsResponse)
    found: dict[TopicPartition, int | HeadraceError] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[partition] = error_for(part.error_code, None, f"delete from {partition}")
            else:
                found[partition] = part.low_watermark
    return found


def describe_producers(
    session: Session, partitions: Collection[TopicPartition]
) -> Flow[dict[TopicPartition, list[ProducerDescription]]]:
    """The idempotent and transactional producers that each partition's leader remembers."""
    limit = session.settings.request_timeout_ms

    def make_ask(node: NodeId, group: Sequence[TopicPartition]) -> Ask:
        topics: dict[str, list[int]] = {}
        for partition in group:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=p) for name, p in topics.items()]
        )
        return Ask(node, request, DescribeProducersResponse, limit)

    return (yield from per_partition(session, partitions, make_ask, _read_producers))


def _read_producers(
    answer: Message,
) -> dict[TopicPartition, list[ProducerDescription] | HeadraceError]:
    assert isinstance(answer, DescribeProducersResponse)
    found: dict[TopicPartition, list[ProducerDescription] | HeadraceError] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[partition] = error_for(
                    part.error_code, part.error_message, f"producers of {partition}"
                )
                continue
            found[partition] = [
                ProducerDescription(
                    state.producer_id,
                    state.producer_epoch,
                    state.last_sequence,
                    state.last_timestamp,
                    state.coordinator_epoch,
                    state.current_txn_start_offset,
                )
                for state in part.active_producers
            ]
    return found


def describe_log_dirs(
    session: Session, brokers: Collection[int] | None
) -> Flow[list[LogDirDescription]]:
    """The data directories of these brokers (None: all) and the replicas in them."""

    def attempt() -> Flow[list[LogDirDescription]]:
        yield from refresh_metadata(session, [])
        nodes = session.cluster.brokers if brokers is None else [NodeId(b) for b in brokers]
        request = DescribeLogDirsRequest(topics=None)
        limit = session.settings.request_timeout_ms
        asks = [Ask(node, request, DescribeLogDirsResponse, limit) for node in nodes]
        answers: list[Message | HeadraceError] = yield AskMany(asks)
        found: list[LogDirDescription] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, HeadraceError):
                raise answer
            assert isinstance(answer, DescribeLogDirsResponse)
            raise_for(answer.error_code, None, f"log dirs of broker {node}")
            found.extend(_log_dir(node, result) for result in answer.results)
        return found

    return (yield from retrying(session, attempt))


def _log_dir(node: NodeId, result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        broker=node,
        path=result.log_dir,
        error_code=result.error_code,
        replicas=[
            ReplicaSize(
                TopicPartition(topic.name, part.partition_index),
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for topic in result.topics
            for part in topic.partitions
        ],
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
    )
