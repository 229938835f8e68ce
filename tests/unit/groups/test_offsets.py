"""Committed offsets: who may commit, what is read back, and what goes by itself."""

from uuid import UUID

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.groups import offset_requests
from headrace.groups.offsets import OffsetAndMetadata, commit_record, committed_in
from headrace.groups.records import decode, encode
from headrace.groups.result import GroupResult
from headrace.groups.settings import GroupSettings
from headrace.metadata.image import Image, Topic
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.schemas.group_offsets import OffsetCommitValue
from tests.support.classic_shard import GROUP, SESSION_MS, ClassicShard, subscribed
from tests.support.group_wire import commit_request

RETENTION_MS = GroupSettings().offsets_retention_ms


def commit(
    world: ClassicShard,
    offset: int,
    *,
    group: str = GROUP,
    topic: str = "t",
    member_id: str = "",
    generation: int = -1,
    version: int = 9,
    retention_ms: int = -1,
) -> ErrorCode:
    request = commit_request(
        group, topic, {0: offset}, member_id=member_id, generation=generation, topic_id=UUID(int=1)
    )
    request.retention_time_ms = retention_ms
    result = world.new_result()
    try:
        offset_requests.commit(world.shard, request, version, "commit", result)
    except ApiError as error:
        return error.code
    world.finish(result)
    return ErrorCode.NONE


def committed(world: ClassicShard, group: str = GROUP, topic: str = "t") -> int | None:
    found = world.shard.offsets.get(group, TopicPartition(topic, 0))
    return None if found is None else found.offset


def clean(world: ClassicShard, group: str = GROUP) -> None:
    result = world.new_result()
    offset_requests.expire_offsets(world.shard, group, result)
    world.finish(result)


def test_anybody_commits_for_a_group_without_members() -> None:
    world = ClassicShard()
    assert commit(world, 5) is ErrorCode.NONE
    assert committed(world) == 5
    assert world.group.protocol_type is None


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_a_group_that_does_not_exist_is_refused(
    version: int, code: ErrorCode
) -> None:
    assert commit(ClassicShard(), 5, member_id="m", generation=1, version=version) is code


def test_only_members_of_this_generation_commit_for_a_live_group() -> None:
    world = ClassicShard()
    first, _ = world.stable_pair()
    assert commit(world, 5, member_id=first, generation=2) is ErrorCode.NONE
    assert commit(world, 6, member_id=first, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, 6, member_id="x", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 6) is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(world) == 5


def test_a_commit_between_join_and_sync_is_put_off() -> None:
    world = ClassicShard()
    member = world.enter("a")
    world.advance(0)
    code = commit(world, 5, member_id=member, generation=1)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_commits_while_others_rejoin() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.join("a", first)
    assert commit(world, 5, member_id=second, generation=2) is ErrorCode.NONE


def test_a_commit_keeps_the_session_alive() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    world.advance(SESSION_MS - 1)
    commit(world, 5, member_id=first, generation=2)
    world.advance(1)
    assert first in world.group.members
    assert second not in world.group.members


def test_an_unknown_group_has_no_offsets_and_is_no_error() -> None:
    asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequestGroup(group_id="nowhere", topics=[asked])
    answer = offset_requests.fetch(ClassicShard().shard, request)
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partitions[0].committed_offset == -1
    everything = OffsetFetchRequestGroup(group_id="nowhere", topics=None)
    assert offset_requests.fetch(ClassicShard().shard, everything).topics == []


@pytest.mark.parametrize("expire_ms", [-1, 99])
def test_a_commit_comes_back_from_its_record(expire_ms: int) -> None:
    # The version with a retention time has no room for epoch and topic id.
    extra = (7, UUID(int=3)) if expire_ms < 0 else (-1, UUID(int=0))
    stored = OffsetAndMetadata(5, extra[0], "text", 12, expire_ms, extra[1])
    record = decode(*encode(commit_record("g", TopicPartition("t", 3), stored)))
    assert record is not None
    assert isinstance(record.value, OffsetCommitValue)
    assert committed_in(record.value) == stored


def test_offsets_of_a_lone_reader_expire_after_their_last_commit() -> None:
    world = ClassicShard()
    commit(world, 5)
    world.now_ms += RETENTION_MS - 1
    clean(world)
    assert committed(world) == 5
    world.now_ms += 1
    clean(world)
    assert committed(world) is None
    assert GROUP not in world.shard.groups
    assert not world.replayed().groups


def test_offsets_of_a_group_expire_once_it_has_been_empty_for_long() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    commit(world, 5, member_id=first, generation=2)
    world.now_ms += 2 * RETENTION_MS
    world.heartbeat(first)
    world.heartbeat(second)
    world.leave((first, None), (second, None))
    clean(world)
    assert committed(world) == 5
    world.now_ms += RETENTION_MS
    clean(world)
    assert committed(world) is None


def test_offsets_of_topics_that_a_live_group_reads_stay() -> None:
    world = ClassicShard()
    world.join("a", version=3, protocols=(("range", subscribed("read")),))
    world.advance(0)
    world.sync("a", {"a-id": b""})
    for topic in ("read", "unread"):
        commit(world, 5, topic=topic, member_id="a-id", generation=1)
    world.now_ms += RETENTION_MS
    clean(world)
    assert committed(world, topic="read") == 5
    assert committed(world, topic="unread") is None


def test_a_commit_may_bring_its_own_retention() -> None:
    world = ClassicShard()
    commit(world, 5, retention_ms=10)
    world.now_ms += 9
    clean(world)
    assert committed(world) == 5
    world.now_ms += 1
    clean(world)
    assert committed(world) is None


def test_offsets_of_a_topic_that_is_read_cannot_be_deleted() -> None:
    world = ClassicShard()
    world.join("a", version=3, protocols=(("range", subscribed("read")),))
    world.advance(0)
    world.sync("a", {"a-id": b""})
    for topic in ("read", "unread"):
        commit(world, 5, topic=topic, member_id="a-id", generation=1)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("read", "unread")
        ],
    )
    result = world.new_result()
    offset_requests.delete(world.shard, request, "delete", result)
    world.finish(result)
    answer = world.answers["delete"]
    assert isinstance(answer, OffsetDeleteResponse)
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert committed(world, topic="read") == 5
    assert committed(world, topic="unread") is None


def test_only_an_empty_group_can_be_deleted() -> None:
    world = ClassicShard()
    first, second = world.stable_pair()
    commit(world, 5, member_id=first, generation=2)
    result = world.new_result()
    with pytest.raises(ApiError) as refused:
        offset_requests.delete_group(world.shard, result, GROUP)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    world.leave((first, None), (second, None))
    result = world.new_result()
    assert offset_requests.delete_group(world.shard, result, GROUP).error_code == ErrorCode.NONE
    world.finish(result)
    assert committed(world) is None
    assert not world.replayed().groups
    result = world.new_result()
    with pytest.raises(ApiError) as unknown:
        offset_requests.delete_group(world.shard, result, GROUP)
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_deleted_topics_go_also_when_nobody_looked() -> None:
    world = ClassicShard()
    for topic in ("kept", "gone", "made anew"):
        commit(world, 5, topic=topic)
    topics = {"kept": Topic("kept", UUID(int=1)), "made anew": Topic("made anew", UUID(int=2))}
    result = GroupResult(
        world.now_ms, world.now_ms, world.settings, Image("cluster", topics=topics)
    )
    offset_requests.delete_offsets_of_missing_topics(world.shard, result)
    world.finish(result)
    assert [committed(world, topic=topic) for topic in ("kept", "gone", "made anew")] == [
        5,
        None,
        None,
    ]


def test_what_was_committed_since_its_topic_was_deleted_is_not_forgotten() -> None:
    world = ClassicShard()
    for topic in ("gone", "made anew"):
        commit(world, 5, topic=topic)
    found = world.shard.offsets.in_topics(frozenset({"gone", "made anew"}))
    commit(world, 1, topic="made anew")
    result = world.new_result()
    offset_requests.delete_offsets_of_topics(world.shard, found, result)
    world.finish(result)
    assert [committed(world, topic=topic) for topic in ("gone", "made anew")] == [None, 1]
