"""OffsetFetch: how far groups have read; one group up to v7, several from v8 on.

Each group, topic and partition is answered once, however often it is named: what was committed
with an offset is much longer than the question.
"""

from collections.abc import Iterable
from uuid import UUID

from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.core.errors import ErrorCode
from headrace.groups.offset_requests import NO_OFFSET
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.security.authorizer import AclOperation, ResourceType

SEVERAL_SINCE = 8
TOPIC_IDS_SINCE = 10
GROUP_ERROR_SINCE = 2


@handles(OffsetFetchRequest)
def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> None:
    """Read the offsets of each group; one that is refused is a value among the others."""
    asked = request.groups if ctx.api_version >= SEVERAL_SINCE else [_as_group(request)]
    partial = [_RequestedGroup(ctx, group) for group in _groups_once(asked)]

    def reply(found: list[OffsetFetchResponseGroup]) -> None:
        by_place = iter(found)
        groups = [
            each.response(next(by_place) if each.allowed is not None else None) for each in partial
        ]
        if ctx.api_version >= SEVERAL_SINCE:
            ctx.reply(OffsetFetchResponse(groups=groups))
        else:
            ctx.reply(_as_single(ctx, request, groups[0]))

    ctx.services.groups.fetch([each.allowed for each in partial if each.allowed is not None], reply)


class _RequestedGroup:
    """One group of the request: what may be asked of it, and what is refused beforehand."""

    def __init__(self, ctx: RequestContext, group: OffsetFetchRequestGroup) -> None:
        self._ctx = ctx
        self._group = group
        self._refused: list[OffsetFetchResponseTopics] = []
        self.allowed: OffsetFetchRequestGroup | None = None
        if ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            self.allowed = OffsetFetchRequestGroup(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=None if group.topics is None else self._allowed_topics(group.topics),
            )

    def _allowed_topics(
        self, topics: list[OffsetFetchRequestTopics]
    ) -> list[OffsetFetchRequestTopics]:
        allowed = []
        for topic in _topics_once(topics):
            name = topic.name
            if self._ctx.api_version >= TOPIC_IDS_SINCE:
                known = self._ctx.services.metadata.image.topics_by_id.get(topic.topic_id)
                if known is None:
                    self._refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                topic.name = name = known.name
            if self._ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                allowed.append(topic)
            else:
                self._refused.append(_refusal(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return allowed

    def response(self, found: OffsetFetchResponseGroup | None) -> OffsetFetchResponseGroup:
        if found is None:
            return OffsetFetchResponseGroup(
                group_id=self._group.group_id,
                topics=[],
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
            )
        if found.error_code == ErrorCode.NONE:
            if self._group.topics is None:
                found.topics = self._visible(found.topics)
            found.topics += self._refused
        return found

    def _visible(self, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
        """Of all topics those that the client may know of, and that can be named to it."""
        known = self._ctx.services.metadata.image.topics
        visible = []
        for topic in topics:
            if not self._ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                continue
            if self._ctx.api_version >= TOPIC_IDS_SINCE:
                if topic.name not in known:
                    continue
                topic.topic_id = known[topic.name].id
            visible.append(topic)
        return visible


def _groups_once(groups: Iterable[OffsetFetchRequestGroup]) -> Iterable[OffsetFetchRequestGroup]:
    once: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        first = once.setdefault(group.group_id, group)
        if first is group or first.topics is None:
            continue
        if group.topics is None:
            first.topics = None
        else:
            first.topics += group.topics
    return once.values()


def _topics_once(topics: Iterable[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
    once: dict[tuple[UUID, str], dict[int, None]] = {}
    for topic in topics:
        indexes = once.setdefault((topic.topic_id, topic.name), {})
        indexes.update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(indexes))
        for (topic_id, name), indexes in once.items()
    ]


def _refusal(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in topics
        ],
    )


def _as_single(
    ctx: RequestContext, request: OffsetFetchRequest, group: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    code = group.error_code
    topics = group.topics
    if code and ctx.api_version < GROUP_ERROR_SINCE:
        # The oldest answer has no place for it but the partitions.
        topics = [
            _refusal(
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes),
                ErrorCode(code),
            )
            for each in request.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
