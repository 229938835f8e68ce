"""Committing a group's offsets and reading them back."""

from collections.abc import Collection, Mapping, Sequence

from headrace.client.core.coordinators import note_code, per_group, send_to_coordinator
from headrace.client.core.errors import error_for
from headrace.client.core.group_models import NO_MEMBER, CommittedOffset, GroupIdentity
from headrace.client.core.operations import ClientOperation, Session, retrying
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import NodeId, TopicPartition
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

# From v10 on topics go by id; by name an offset can be committed for a topic whose id is unknown.
_LAST_VERSION_BY_NAME = 9
_FIRST_VERSION_OF_MANY = 8


def commit_offsets(
    session: Session,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    identity: GroupIdentity = NO_MEMBER,
) -> ClientOperation[dict[TopicPartition, HeadraceError]]:
    """One attempt to commit; failures come back by partition, as neighbours may have succeeded."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), committed in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=identity.epoch,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()
        ],
    )
    response = yield from send_to_coordinator(
        session, group, request, OffsetCommitResponse, version_max=_LAST_VERSION_BY_NAME
    )
    failures: dict[TopicPartition, HeadraceError] = {}
    for topic_result in response.topics:
        for part in topic_result.partitions:
            if part.error_code:
                note_code(session, group, part.error_code)
                where = TopicPartition(topic_result.name, part.partition_index)
                what = f"commit of {where} in group {group!r}"
                failures[where] = error_for(part.error_code, None, what)
    return failures


def fetch_offsets(
    session: Session,
    group: str,
    partitions: Collection[TopicPartition] | None,
    identity: GroupIdentity = NO_MEMBER,
    *,
    timeout_ms: float | None = None,
) -> ClientOperation[dict[TopicPartition, CommittedOffset]]:
    """What the group has committed for these partitions (None: all); those without are left out."""

    def attempt() -> ClientOperation[dict[TopicPartition, CommittedOffset]]:
        request = OffsetFetchRequest(
            groups=[_group_request(group, partitions, identity)], require_stable=True
        )
        response = yield from send_to_coordinator(
            session,
            group,
            request,
            OffsetFetchResponse,
            version_min=_FIRST_VERSION_OF_MANY,
            version_max=_LAST_VERSION_BY_NAME,
        )
        return _read_offsets(session, response.groups[0])

    return (yield from retrying(session, attempt, timeout_ms=timeout_ms))


def fetch_all_offsets(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, dict[TopicPartition, CommittedOffset]]]:
    """Everything that several groups have committed, in one request per coordinator."""

    def make_request(node: NodeId, asked: Sequence[str]) -> SendRequest:
        request = OffsetFetchRequest(
            groups=[_group_request(group, None, NO_MEMBER) for group in asked], require_stable=False
        )
        limit = session.settings.request_timeout_ms
        return SendRequest(
            node,
            request,
            OffsetFetchResponse,
            limit,
            version_min=_FIRST_VERSION_OF_MANY,
            version_max=_LAST_VERSION_BY_NAME,
        )

    def read(
        response: Message,
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | HeadraceError]:
        assert isinstance(response, OffsetFetchResponse)
        found: dict[str, dict[TopicPartition, CommittedOffset] | HeadraceError] = {}
        for group in response.groups:
            try:
                found[group.group_id] = _read_offsets(session, group)
            except HeadraceError as error:
                found[group.group_id] = error
        return found

    return (yield from per_group(session, groups, make_request, read))


def _group_request(
    group: str, partitions: Collection[TopicPartition] | None, identity: GroupIdentity
) -> OffsetFetchRequestGroup:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, []).append(number)
    return OffsetFetchRequestGroup(
        group_id=group,
        member_id=identity.member_id or None,
        member_epoch=identity.epoch,
        topics=None
        if partitions is None
        else [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
    )


def _read_offsets(
    session: Session, response: OffsetFetchResponseGroup
) -> dict[TopicPartition, CommittedOffset]:
    """One group's part of an answer; raises its error, or that of a partition."""
    group = response.group_id
    if response.error_code:
        note_code(session, group, response.error_code)
        raise error_for(response.error_code, None, f"offsets of group {group!r}")
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in response.topics:
        for part in topic.partitions:
            where = TopicPartition(topic.name, part.partition_index)
            if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if part.error_code:
                raise error_for(part.error_code, None, f"offset of {where} in group {group!r}")
            if part.committed_offset >= 0:
                found[where] = CommittedOffset(
                    part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                )
    return found
