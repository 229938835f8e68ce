"""The state that records build, also records that others wrote; and who may use its offsets."""

from uuid import UUID

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.describe import describe
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import MemberState
from headrace.groups.consumer.offset_rules import check_commit, check_fetch
from headrace.groups.consumer.patterns import matching
from headrace.groups.consumer.topics import ImageTopics
from headrace.groups.records import GroupRecord
from headrace.groups.shard import GroupShard
from headrace.protocol.schemas.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    CurrentTopicPartitions,
)
from tests.support.consumer_groups import GROUP, Client, Coordinator, settle

TOPIC_ID = UUID(int=1)


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.set_topic("t", 2)
    return made


def current(state: int = 0, epochs: list[int] | None = None, *, epoch: int = 5) -> GroupRecord:
    """What member m owns, as another broker may have written it."""
    owned = CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    if epochs is not None:
        owned.assignment_epochs = epochs
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            state=state,
            assigned_partitions=[owned],
            partitions_pending_revocation=[],
        ),
    )


def about_member() -> GroupRecord:
    return GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="m"),
        ConsumerGroupMemberMetadataValue(
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            rebalance_timeout_ms=1_000,
        ),
    )


def group_of(*records: GroupRecord) -> ConsumerGroup:
    shard = GroupShard()
    for record in records:
        shard.replay(record)
    group = shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


# Records


def test_partitions_without_epochs_count_from_the_members_epoch() -> None:
    """Brokers before Kafka 4.3 did not write the epochs."""
    group = group_of(about_member(), current())
    assert set(group.members["m"].assigned.values()) == {5}
    assert group_of(current(epochs=[3, 4])).members["m"].assigned == {
        TopicIdPartition(TOPIC_ID, 0): 3,
        TopicIdPartition(TOPIC_ID, 1): 4,
    }


def test_the_order_in_which_compaction_leaves_records_does_not_matter() -> None:
    assert group_of(current(), about_member()) == group_of(about_member(), current())


def test_a_member_in_a_state_of_a_later_kafka_must_come_with_empty_hands() -> None:
    group = group_of(about_member(), current(state=9))
    assert group.members["m"].state is MemberState.UNKNOWN
    coordinator = Coordinator()
    coordinator.set_topic("t", 2)
    coordinator.shard.groups[GROUP] = group
    full = Client("m", ["t"], epoch=5, owned={TopicIdPartition(TOPIC_ID, 0)})
    assert full.beat(coordinator) is ErrorCode.FENCED_MEMBER_EPOCH
    assert full.beat(coordinator) is ErrorCode.NONE


def test_topic_metadata_as_older_brokers_kept_it_is_passed_over() -> None:
    shard = GroupShard()
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    shard.replay(GroupRecord(key, ConsumerGroupPartitionMetadataValue(topics=[])))
    assert shard.groups == {}


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    shard = GroupShard()
    for key in (
        ConsumerGroupMetadataKey(group_id=GROUP),
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="m"),
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m"),
    ):
        shard.replay(GroupRecord(key, None))
    assert shard.groups == {}
    group = group_of(about_member())
    other = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="other")
    group.apply(GroupRecord(other, None))
    assert group.members.keys() == {"m"}


def test_the_tombstones_of_a_group_leave_nothing_of_it(coordinator: Coordinator) -> None:
    first, second = Client("m1", ["t"]), Client("m2", [], regex="t.*")
    settle(coordinator, [first, second])
    records = coordinator.group.tombstones()
    for record in records:
        coordinator.shard.replay(record)
    assert coordinator.shard.groups == {}
    assert len(records) == 2 * 3 + 1 + 2


def test_a_restart_in_the_middle_of_a_handover_keeps_the_pace(coordinator: Coordinator) -> None:
    first = Client("m1", ["t"])
    settle(coordinator, [first])
    second = Client("m2", ["t"])
    second.beat(coordinator)
    coordinator.advance(60_000 // 2)
    coordinator.restart()
    second.beat(coordinator)
    assert second.interval_ms == 200
    settle(coordinator, [first, second])
    coordinator.restart()
    second.beat(coordinator)
    assert second.interval_ms == 5_000


# Descriptions and patterns


def test_a_description_leaves_out_topics_that_are_gone(coordinator: Coordinator) -> None:
    member = Client("m", ["t"])
    settle(coordinator, [member])
    shown = describe(coordinator.group, ImageTopics(coordinator.image), "uniform").members[0]
    assert [topic.topic_name for topic in shown.assignment.topic_partitions] == ["t"]
    coordinator.delete_topic("t")
    shown = describe(coordinator.group, ImageTopics(coordinator.image), "uniform").members[0]
    assert shown.assignment.topic_partitions == []
    assert (shown.subscribed_topic_names, shown.subscribed_topic_regex) == (["t"], "")


def test_a_pattern_finds_only_topics_that_the_subscriber_may_see() -> None:
    names = ["apples", "pears", "secrets"]
    assert matching(".*s", names, lambda name: name != "secrets") == {"apples", "pears"}


# Offsets


def commit(
    coordinator: Coordinator, epoch: int, partition: int = 0, *, member_id: str = "m"
) -> ErrorCode:
    topics = ImageTopics(coordinator.image)
    try:
        check = check_commit(coordinator.group, member_id, epoch, 9, topics)
        if check is not None:
            check("t", partition)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_a_member_may_commit_in_its_epoch_and_for_what_it_kept_also_before(
    coordinator: Coordinator,
) -> None:
    member, other = Client("m", ["t"]), Client("other", ["t"])
    settle(coordinator, [member])
    first = member.epoch
    settle(coordinator, [member, other])
    (kept,) = (place.partition for place in member.owned)
    assert commit(coordinator, member.epoch, kept) is ErrorCode.NONE
    assert commit(coordinator, first, kept) is ErrorCode.NONE
    assert commit(coordinator, first, 1 - kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(coordinator, first - 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(coordinator, member.epoch + 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(coordinator, member.epoch, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID


def test_partitions_on_their_way_out_may_still_be_committed(coordinator: Coordinator) -> None:
    member, other = Client("m", ["t"]), Client("other", ["t"])
    settle(coordinator, [member])
    other.beat(coordinator)
    member.beat(coordinator)
    assert coordinator.group.members["m"].pending_revocation
    for partition in (0, 1):
        assert commit(coordinator, member.epoch, partition) is ErrorCode.NONE


def test_commits_without_an_epoch_are_for_empty_groups(coordinator: Coordinator) -> None:
    member = Client("m", ["t"])
    settle(coordinator, [member])
    assert commit(coordinator, -1, member_id="") is ErrorCode.UNKNOWN_MEMBER_ID
    member.leave(coordinator)
    assert commit(coordinator, -1, member_id="") is ErrorCode.NONE


def test_an_old_version_of_the_commit_cannot_come_from_a_consumer_member(
    coordinator: Coordinator,
) -> None:
    member = Client("m", ["t"])
    settle(coordinator, [member])
    with pytest.raises(ApiError) as caught:
        check_commit(coordinator.group, "m", member.epoch, 8, ImageTopics(coordinator.image))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_member_must_fetch_offsets_in_its_epoch_and_others_may_look(
    coordinator: Coordinator,
) -> None:
    member = Client("m", ["t"])
    settle(coordinator, [member])
    check_fetch(coordinator.group, None, -1)
    check_fetch(coordinator.group, "m", member.epoch)
    for member_id, epoch, code in (
        ("m", member.epoch - 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", member.epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", member.epoch, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as caught:
            check_fetch(coordinator.group, member_id, epoch)
        assert caught.value.code is code
