"""Committed offsets of the groups of one shard."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.core.ids import NO_TOPIC_ID, TopicPartition
from headrace.groups.records import GroupRecord
from headrace.protocol.schemas.group_offsets import OffsetCommitKey, OffsetCommitValue


class OffsetAndMetadata(NamedTuple):
    """Where a group goes on reading one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    """For commits that brought a retention time of their own; otherwise -1."""
    topic_id: UUID = NO_TOPIC_ID
    """Unknown in records of older brokers."""


class GroupOffset(NamedTuple):
    """An offset, and whose it is."""

    group_id: str
    partition: TopicPartition
    committed: OffsetAndMetadata


class CommittedOffsets:
    """By group, then by partition; a group without any is not in it."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffsets) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def of(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All offsets of a group; not to be changed."""
        return self._groups.get(group_id, {})

    def get(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        offsets = self._groups.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def put(self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata) -> None:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = {}
        offsets[partition] = committed

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._groups[group_id]

    def in_topics(self, topics: frozenset[str]) -> list[GroupOffset]:
        """Every offset in one of these topics."""
        return [
            GroupOffset(group_id, partition, committed)
            for group_id, offsets in self._groups.items()
            for partition, committed in offsets.items()
            if partition.topic in topics
        ]

    def without_topic(self, topics: Mapping[str, UUID]) -> list[tuple[str, TopicPartition]]:
        """Those in a topic that is none of these, or was one of them before it was made anew."""
        return [
            (group_id, partition)
            for group_id, offsets in self._groups.items()
            for partition, committed in offsets.items()
            if committed.topic_id != NO_TOPIC_ID
            and topics.get(partition.topic) != committed.topic_id
        ]


def commit_record(
    group_id: str, partition: TopicPartition, committed: OffsetAndMetadata
) -> GroupRecord:
    """The record that stores an offset."""
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition),
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
            expire_timestamp=committed.expire_ms,
            topic_id=committed.topic_id,
        ),
    )


def tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    """The record that forgets an offset."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return GroupRecord(key, None)


def committed_in(value: OffsetCommitValue) -> OffsetAndMetadata:
    """What `commit_record` stored."""
    return OffsetAndMetadata(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
