"""What requests do to committed offsets, and how offsets come to an end."""

from collections.abc import Iterable

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.groups.classic import syncing
from headrace.groups.consumer import offset_rules
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.offset_rules import PartitionCheck
from headrace.groups.consumer.topics import ImageTopics
from headrace.groups.names import fits_a_record
from headrace.groups.offsets import GroupOffset, OffsetAndMetadata, commit_record, tombstone
from headrace.groups.records import GroupRecord
from headrace.groups.result import GroupResult
from headrace.groups.shard_state import Group, ShardState
from headrace.protocol.messages.delete_groups import DeletableGroupResult
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_OFFSET = -1
NOT_FOUND_SINCE = 9
"""From this version on a commit for a group that does not exist is told so."""


def commit(
    shard: ShardState,
    request: OffsetCommitRequest,
    api_version: int,
    reply: Reply,
    result: GroupResult,
) -> None:
    """Store offsets; raises what holds for all of them."""
    check = _check_commit(shard, request, api_version, result)
    expire_ms = -1 if request.retention_time_ms < 0 else result.time_ms + request.retention_time_ms
    limit = result.settings.offset_metadata_max_bytes
    topics = []
    accepted: dict[TopicPartition, OffsetAndMetadata] = {}
    records: list[GroupRecord] = []
    for topic in request.topics:
        responses = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            response = OffsetCommitResponsePartition(partition_index=each.partition_index)
            responses.append(response)
            if len(metadata) > limit or not fits_a_record(metadata):
                response.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            if check is not None:
                check(topic.name, each.partition_index)
            committed = OffsetAndMetadata(
                each.committed_offset,
                each.committed_leader_epoch,
                metadata,
                result.time_ms,
                expire_ms,
                topic.topic_id,
            )
            partition = TopicPartition(topic.name, each.partition_index)
            accepted[partition] = committed
            records.append(commit_record(request.group_id, partition, committed))
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=responses
            )
        )
    result.append(*records)
    for partition, committed in accepted.items():
        shard.put_offset(request.group_id, partition, committed)
    shard.counts.commits += len(records)
    result.reply(reply, OffsetCommitResponse(topics=topics))


def _check_commit(
    shard: ShardState, request: OffsetCommitRequest, api_version: int, result: GroupResult
) -> PartitionCheck | None:
    """Refuse the whole commit, or return what each of its partitions has to pass."""
    group = shard.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        # Without a generation it is a reader that assigns its partitions itself, or an operator.
        if generation < 0:
            return None
        known = api_version >= NOT_FOUND_SINCE
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ConsumerGroup):
        return offset_rules.check_commit(
            group, request.member_id, generation, api_version, ImageTopics(result.image)
        )
    group.check_commit(request.member_id, request.group_instance_id, generation, api_version)
    syncing.offsets_committed(group, request.member_id, result)
    return None


def fetch(shard: ShardState, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """Offsets of one group; a group that nobody knows has simply none."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        if isinstance(group, ConsumerGroup):
            offset_rules.check_fetch(group, request.member_id, request.member_epoch)
        else:
            group.check_fetch(request.member_id, request.member_epoch)
    offsets = shard.offsets.of(request.group_id)
    asked = _all_of(offsets) if request.topics is None else request.topics
    return OffsetFetchResponseGroup(
        group_id=request.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    fetched(index, offsets.get(TopicPartition(topic.name, index)))
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked
        ],
    )


def fetch_error(group_id: str, error: ApiError) -> OffsetFetchResponseGroup:
    """A group that could not be looked at."""
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error.code)


def fetched(index: int, committed: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _all_of(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        for name, indexes in topics.items()
    ]


def delete(
    shard: ShardState, request: OffsetDeleteRequest, reply: Reply, result: GroupResult
) -> None:
    """Forget offsets, but not of topics that the group is reading."""
    group = shard.groups.get(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offset_delete()
    offsets = shard.offsets.of(request.group_id)
    is_read = group.subscription()
    topics = []
    gone = []
    for topic in request.topics:
        in_use = is_read(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
        responses = []
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if not in_use and partition in offsets:
                gone.append(tombstone(request.group_id, partition))
            responses.append(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=responses))
    shard.append(result, *gone)
    result.reply(reply, OffsetDeleteResponse(topics=topics))


def delete_group(shard: ShardState, result: GroupResult, group_id: str) -> DeletableGroupResult:
    """Forget an empty group with all its offsets."""
    group = shard.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty():
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    gone = [tombstone(group_id, partition) for partition in shard.offsets.of(group_id)]
    shard.append(result, *gone, *group.tombstones())
    return DeletableGroupResult(group_id=group_id)


def delete_error(group_id: str, error: ApiError) -> DeletableGroupResult:
    """A group that could not be deleted."""
    return DeletableGroupResult(group_id=group_id, error_code=error.code)


def delete_offsets_of_topics(
    shard: ShardState, offsets: Iterable[GroupOffset], result: GroupResult
) -> None:
    """Their topics were deleted; they mean nothing any more.

    One that was committed since belongs to another topic of that name, and stays.
    """
    gone = [
        tombstone(group_id, partition)
        for group_id, partition, committed in offsets
        if shard.offsets.get(group_id, partition) is committed
    ]
    shard.append(result, *gone)


def delete_offsets_of_missing_topics(shard: ShardState, result: GroupResult) -> None:
    """The same after a load, for topics that went while nobody looked."""
    ids = {topic.name: topic.id for topic in result.image.topics.values()}
    gone = shard.offsets.without_topic(ids)
    shard.append(result, *(tombstone(group_id, partition) for group_id, partition in gone))


def expire_offsets(shard: ShardState, group_id: str, result: GroupResult) -> None:
    """Forget offsets that outlived their retention, then the group if nothing is left of it."""
    group = shard.groups.get(group_id)
    if group is None:
        return
    offsets = shard.offsets.of(group_id)
    is_read = group.subscription()
    expired = [
        partition
        for partition, committed in offsets.items()
        if not is_read(partition.topic) and _is_expired(group, committed, result)
    ]
    records = [tombstone(group_id, partition) for partition in expired]
    if len(expired) == len(offsets) and group.is_empty() and not group.is_joining():
        records += group.tombstones()
    shard.append(result, *records)
    shard.counts.expired_offsets += len(expired)


def _is_expired(group: Group, committed: OffsetAndMetadata, result: GroupResult) -> bool:
    start_ms = group.offsets_expire_from(committed.commit_ms)
    if start_ms is None:
        return False
    if committed.expire_ms >= 0:
        return result.time_ms >= committed.expire_ms
    return result.time_ms - start_ms >= result.settings.offsets_retention_ms
