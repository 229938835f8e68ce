"""Admin operations about configs, records and what lies on disk."""

from collections.abc import Collection, Mapping, Sequence

from headrace.client.core.errors import error_for, raise_for
from headrace.client.core.lookups import per_partition, raise_for_topic, refresh_metadata
from headrace.client.core.models import (
    ConfigChange,
    ConfigEntry,
    LogDirDescription,
    ProducerDescription,
    ReplicaSize,
)
from headrace.client.core.operations import (
    ClientOperation,
    SendAll,
    Session,
    retrying,
    send_to,
    send_to_any,
)
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.network.send_request import SendRequest
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
_OF_ONE_BROKER = frozenset({ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER})


def _target_node(resource: ConfigResource) -> NodeId | None:
    """The one broker that can answer for a resource, None where any can."""
    if resource.type in _OF_ONE_BROKER and resource.name.isdecimal():
        return NodeId(int(resource.name))
    return None


def _by_target_node(
    resources: Collection[ConfigResource],
) -> dict[NodeId | None, list[ConfigResource]]:
    nodes: dict[NodeId | None, list[ConfigResource]] = {}
    for resource in resources:
        nodes.setdefault(_target_node(resource), []).append(resource)
    return nodes


def describe_configs(
    session: Session,
    resources: Collection[ConfigResource],
    *,
    keys: Sequence[str] | None,
    documentation: bool,
) -> ClientOperation[dict[ConfigResource, dict[str, ConfigEntry]]]:
    """All configs of each resource (or the given keys), with their sources."""

    def attempt() -> ClientOperation[dict[ConfigResource, dict[str, ConfigEntry]]]:
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for node, group in _by_target_node(resources).items():
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
            if node is None:
                response = yield from send_to_any(session, request, DescribeConfigsResponse)
            else:
                yield from _know_brokers(session)
                response = yield from send_to(session, node, request, DescribeConfigsResponse)
            for result in response.results:
                name = result.resource_name
                what = f"configs of {name!r}"
                raise_for_topic(result.error_code, result.error_message, name, what)
                key = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
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


def _know_brokers(session: Session) -> ClientOperation[None]:
    if not session.cluster.brokers:
        yield from refresh_metadata(session, [])


def alter_configs(
    session: Session,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool,
) -> ClientOperation[None]:
    """Change the given keys and leave the others as they are."""

    def attempt() -> ClientOperation[None]:
        for node, group in _by_target_node(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[_alteration(resource, changes[resource]) for resource in group],
                validate_only=validate_only,
            )
            if node is None:
                response = yield from send_to_any(session, request, IncrementalAlterConfigsResponse)
            else:
                yield from _know_brokers(session)
                response = yield from send_to(
                    session, node, request, IncrementalAlterConfigsResponse
                )
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
) -> ClientOperation[dict[TopicPartition, int]]:
    """Drop records below the given offsets (-1: all); returns where each log starts now."""
    limit = session.settings.request_timeout_ms

    def make_request(node: NodeId, group: Sequence[TopicPartition]) -> SendRequest:
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
        return SendRequest(node, request, DeleteRecordsResponse, limit)

    return (yield from per_partition(session, before, make_request, _read_deletions))


def _read_deletions(response: Message) -> dict[TopicPartition, int | HeadraceError]:
    assert isinstance(response, DeleteRecordsResponse)
    found: dict[TopicPartition, int | HeadraceError] = {}
    for topic in response.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[partition] = error_for(part.error_code, None, f"delete from {partition}")
            else:
                found[partition] = part.low_watermark
    return found


def describe_producers(
    session: Session, partitions: Collection[TopicPartition]
) -> ClientOperation[dict[TopicPartition, list[ProducerDescription]]]:
    """The idempotent and transactional producers that each partition's leader remembers."""
    limit = session.settings.request_timeout_ms

    def make_request(node: NodeId, group: Sequence[TopicPartition]) -> SendRequest:
        topics: dict[str, list[int]] = {}
        for partition in group:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=p) for name, p in topics.items()]
        )
        return SendRequest(node, request, DescribeProducersResponse, limit)

    return (yield from per_partition(session, partitions, make_request, _read_producers))


def _read_producers(
    response: Message,
) -> dict[TopicPartition, list[ProducerDescription] | HeadraceError]:
    assert isinstance(response, DescribeProducersResponse)
    found: dict[TopicPartition, list[ProducerDescription] | HeadraceError] = {}
    for topic in response.topics:
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
) -> ClientOperation[list[LogDirDescription]]:
    """The data directories of these brokers (None: all) and the replicas in them."""

    def attempt() -> ClientOperation[list[LogDirDescription]]:
        yield from refresh_metadata(session, [])
        nodes = session.cluster.brokers if brokers is None else [NodeId(b) for b in brokers]
        request = DescribeLogDirsRequest(topics=None)
        limit = session.settings.request_timeout_ms
        requests = [SendRequest(node, request, DescribeLogDirsResponse, limit) for node in nodes]
        responses: list[Message | HeadraceError] = yield SendAll(requests)
        found: list[LogDirDescription] = []
        for node, response in zip(nodes, responses, strict=True):
            if isinstance(response, HeadraceError):
                raise response
            assert isinstance(response, DescribeLogDirsResponse)
            raise_for(response.error_code, None, f"log dirs of broker {node}")
            found.extend(_log_dir(node, result) for result in response.results)
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
