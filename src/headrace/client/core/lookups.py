"""Flows that keep the metadata cache fresh and find offsets by time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from headrace.client.core.cluster import TopicState
from headrace.client.core.errors import error_for, raise_for
from headrace.client.core.models import ListedOffset, OffsetSpec
from headrace.client.core.operations import ClientOperation, SendAll, Session, retrying, send_to_any
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

V = TypeVar("V")

# Errors that say "you asked the wrong broker, or too early": look again, then retry.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def refresh_metadata(
    session: Session, topics: Collection[str] | None, *, create: bool = False
) -> ClientOperation[MetadataResponse]:
    """Ask any broker about these topics (None: all) and take the answer into the cache."""
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
    response = yield from send_to_any(session, request, MetadataResponse, version_min=1)
    session.cluster.update(response, session.now_ms())
    return response


def resolve_topic_ids(session: Session, ids: Collection[UUID]) -> ClientOperation[None]:
    """Learn about topics of which only the id is known; those that are gone stay unknown."""
    wanted = [MetadataRequestTopic(topic_id=topic_id) for topic_id in ids]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    response = yield from send_to_any(session, request, MetadataResponse, version_min=12)
    session.cluster.update(response, session.now_ms())


def ensure_topics(
    session: Session, topics: Collection[str], *, create: bool = False
) -> ClientOperation[dict[str, TopicState]]:
    """The topics' metadata, asked for only where it is missing or old; all must exist."""

    def attempt() -> ClientOperation[dict[str, TopicState]]:
        cluster, age = session.cluster, session.settings.metadata_age_ms_max
        stale = [name for name in topics if cluster.is_stale(name, session.now_ms(), age)]
        if stale:
            yield from refresh_metadata(session, stale, create=create)
        for name in topics:
            if name not in cluster.topics:
                code = cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise topic_error(code, name, may_appear=create)
        return {name: cluster.topics[name] for name in topics}

    return (yield from retrying(session, attempt))


def topic_error(code: ErrorCode, name: str, *, may_appear: bool) -> ApiError:
    """The error for a topic; a missing one is final unless it may be created meanwhile."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not may_appear:
        return MissingTopic(code, f"topic {name!r} does not exist; create it first")
    return error_for(code, None, f"topic {name!r}")


def raise_for_topic(code: int, message: str | None, name: str, what: str) -> None:
    """Raise what a broker says of an existing topic; that there is none is an answer too."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, may_appear=False)
    raise_for(code, message, what)


def partition_error(topic: str, partition: int, count: int) -> ApiError:
    """The error for a number that the topic has no partition for."""
    there = f"partitions 0 to {count - 1}" if count > 1 else "only partition 0"
    return MissingTopic(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has {there}, not {partition}"
    )


class MissingTopic(ApiError):
    """The topic or partition does not exist; waiting for it would only hide a typing error."""

    @property
    def retriable(self) -> bool:
        return False


def by_leader(
    session: Session, partitions: Iterable[TopicPartition]
) -> ClientOperation[dict[NodeId, list[TopicPartition]]]:
    """Group partitions by leader, refreshing what is not known."""
    wanted = list(partitions)
    topics = {partition.topic for partition in wanted}
    known = yield from ensure_topics(session, topics)
    groups: dict[NodeId, list[TopicPartition]] = {}
    for partition in wanted:
        count = len(known[partition.topic].partitions)
        if not 0 <= partition.partition < count:
            session.cluster.mark_stale([partition.topic])
            raise partition_error(partition.topic, partition.partition, count)
        leader = session.cluster.leader(partition)
        if leader is None:
            session.cluster.mark_stale([partition.topic])
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, None, f"partition {partition}")
        groups.setdefault(leader, []).append(partition)
    return groups


def per_partition(
    session: Session,
    partitions: Collection[TopicPartition],
    make_request: Callable[[NodeId, Sequence[TopicPartition]], SendRequest],
    read: Callable[[Message], Mapping[TopicPartition, V | HeadraceError]],
    *,
    timeout_ms: float | None = None,
) -> ClientOperation[dict[TopicPartition, V]]:
    """Ask every leader about its partitions; retry only those that failed and may yet succeed."""
    done: dict[TopicPartition, V] = {}

    def attempt() -> ClientOperation[dict[TopicPartition, V]]:
        missing = [partition for partition in partitions if partition not in done]
        groups = yield from by_leader(session, missing)
        requests = [make_request(node, group) for node, group in groups.items()]
        responses: list[Message | HeadraceError] = yield SendAll(requests)
        failure: HeadraceError | None = None
        for response, group in zip(responses, groups.values(), strict=True):
            if isinstance(response, HeadraceError):
                session.cluster.mark_stale({partition.topic for partition in group})
                failure = _worse(failure, response)
                continue
            for partition, value in read(response).items():
                if isinstance(value, HeadraceError):
                    if value.code in STALE_METADATA:
                        session.cluster.mark_stale([partition.topic])
                    failure = _worse(failure, value)
                else:
                    done[partition] = value
        if failure is not None:
            raise failure
        return done

    return (yield from retrying(session, attempt, timeout_ms=timeout_ms))


def _worse(first: HeadraceError | None, second: HeadraceError) -> HeadraceError:
    """Of two failures the one that will not heal by itself."""
    return second if first is None or (first.retriable and not second.retriable) else first


def list_offsets(
    session: Session,
    specs: Mapping[TopicPartition, OffsetSpec],
    *,
    read_committed: bool = False,
    timeout_ms: float | None = None,
) -> ClientOperation[dict[TopicPartition, ListedOffset]]:
    """Offsets by meaning or time, from the leaders."""
    lowest = min((spec.timestamp_ms for spec in specs.values()), default=0)
    version_min = {-3: 7, -4: 8, -5: 9, -6: 11}.get(lowest, 1)

    def make_request(node: NodeId, group: Sequence[TopicPartition]) -> SendRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition in group:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=session.cluster.leader_epoch(partition),
                    timestamp=specs[partition].timestamp_ms,
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[
                ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()
            ],
            timeout_ms=session.settings.request_timeout_ms,
        )
        limit = session.settings.request_timeout_ms
        return SendRequest(node, request, ListOffsetsResponse, limit, version_min=version_min)

    return (
        yield from per_partition(session, specs, make_request, _read_offsets, timeout_ms=timeout_ms)
    )


def _read_offsets(response: Message) -> dict[TopicPartition, ListedOffset | HeadraceError]:
    assert isinstance(response, ListOffsetsResponse)
    found: dict[TopicPartition, ListedOffset | HeadraceError] = {}
    for topic in response.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                found[partition] = error_for(part.error_code, None, f"offsets of {partition}")
            else:
                found[partition] = ListedOffset(part.offset, part.timestamp, part.leader_epoch)
    return found
