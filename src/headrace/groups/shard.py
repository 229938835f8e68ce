"""The groups of one partition of `__consumer_offsets`: a machine without I/O.

A request changes the state while it is decided, and hands over the records that say so
(`Result.append`). `replay` brings one record into the state when the log is read at a load; both
end with the same state, as far as it is written down at all.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.core.shared_calls import call_each
from headrace.groups import consumer_group_requests, offset_requests
from headrace.groups.classic import expiry, joining, leaving, syncing
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.rebalance import join_error
from headrace.groups.consumer.group import CONSUMER_GROUP_KEYS, ConsumerGroup
from headrace.groups.offsets import CommittedOffsets, OffsetAndMetadata, committed_in
from headrace.groups.pending_offsets import PendingOffsets
from headrace.groups.records import GroupRecord
from headrace.groups.result import ClientInfo, GroupResult
from headrace.groups.shard_state import Group, GroupCounts
from headrace.groups.stored_offsets import StoredOffset
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest
from headrace.protocol.schemas.consumer_groups import ConsumerGroupMetadataKey
from headrace.protocol.schemas.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

logger = logging.getLogger(__name__)

OFFSETS_PER_SLICE = 500
"""Forgotten in one turn of the event loop: a few milliseconds."""

EXPIRATION_MS_MIN: Final = 10


class GroupShard:
    """Groups and their offsets."""

    def __init__(self, counts: GroupCounts | None = None) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.pending_offsets = PendingOffsets()
        self.counts = GroupCounts() if counts is None else counts

    # Records

    def append(self, result: GroupResult, *records: GroupRecord) -> None:
        """Hand over records whose whole effect is what `replay` makes of them."""
        result.append(*records)
        for record in records:
            self.replay(record)

    def replay(self, record: GroupRecord | StoredOffset, producer_id: int = -1) -> None:
        """Bring one record into the state; must accept whatever was ever written."""
        if isinstance(record, StoredOffset):
            if producer_id < 0:
                self.put_offset(*record)
            else:
                self.pending_offsets.put(producer_id, record)
            return
        key, value = record
        if isinstance(key, OffsetCommitKey):
            partition = TopicPartition(key.topic, key.partition)
            if isinstance(value, OffsetCommitValue):
                self.replay(StoredOffset(key.group, partition, committed_in(value)), producer_id)
            else:
                self.offsets.remove(key.group, partition)
        elif isinstance(key, GroupMetadataKey):
            self._replay_classic(key.group, value)
        elif type(key) in CONSUMER_GROUP_KEYS:
            self._replay_consumer(record)

    def replay_marker(self, producer_id: int, epoch: int, commit: bool) -> None:  # noqa: ARG002
        """Offsets of a transaction count, or are forgotten, once it has ended.

        Whoever wrote the marker has seen to it that the producer's epoch is the right one.
        """
        for offset in self.pending_offsets.end(producer_id, commit=commit):
            self._store_offset(*offset)

    def put_offset(
        self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> None:
        """What the record of a commit does."""
        if self.pending_offsets.producers:
            self.pending_offsets.drop_older(group_id, partition)
        if group_id in self.groups:
            self.offsets.put(group_id, partition, committed)
        else:
            self._store_offset(group_id, partition, committed)

    def _store_offset(
        self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> None:
        if group_id not in self.groups:
            # A group that only stores offsets has no record of its own.
            self.groups[group_id] = ClassicGroup(group_id)
        self.offsets.put(group_id, partition, committed)

    def _replay_classic(self, group_id: str, value: object) -> None:
        if isinstance(value, GroupMetadataValue):
            self.groups[group_id] = ClassicGroup.from_record(group_id, value)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            del self.groups[group_id]

    def _replay_consumer(self, record: GroupRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]  # all these keys have it
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # What was there only stored offsets, or was upgraded.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.apply(record)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self.groups[group_id]

    # The runtime's calls

    def loaded(self, result: GroupResult) -> None:
        """The whole log is in; time begins to run for the members in it."""
        offset_requests.delete_offsets_of_missing_topics(self, result)

        def begin(group: Group) -> None:
            if isinstance(group, ConsumerGroup):
                settings = consumer_group_requests.group_context(group.group_id, result).settings
                group.loaded(result.now_ms, settings.session_timeout_ms)
            else:
                group.loaded(result.now_ms)
            self.schedule(group.group_id, result)

        call_each(logger, "the time of a group", self.groups.values(), begin)
        self._schedule_expiration(result)

    def timer(self, key: str | None, result: GroupResult) -> None:
        """Look what time has done to a group, or to the offsets of all."""
        if key is None:
            self._expire_offsets(result)
            self._schedule_expiration(result)
            return
        group = self.groups.get(key)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.expire(self, group, result)
        elif group is not None:
            expiry.expire(group, result)
        self.schedule(key, result)

    def metadata_changed(
        self, before: Image, image: Image, delta: Delta
    ) -> Iterator[Callable[[GroupResult], None]]:
        """Forget the offsets of topics that were deleted."""
        gone = frozenset(
            name
            for name in delta.topics
            if name in before.topics
            and (name not in image.topics or image.topics[name].id != before.topics[name].id)
        )
        offsets = self.offsets.in_topics(gone) if gone else ()
        for start in range(0, len(offsets), OFFSETS_PER_SLICE):
            some = offsets[start : start + OFFSETS_PER_SLICE]
            yield partial(offset_requests.delete_offsets_of_topics, self, some)

    def abandoned(self) -> list[Reply]:
        """Everybody who waits for a rebalance."""
        return [reply for group in self.groups.values() for reply in group.waiting_replies()]

    def schedule(self, group_id: str, result: GroupResult) -> None:
        """A group has changed: be there when it next has to be looked at."""
        result.schedule(group_id, self.next_deadline_ms(group_id))

    def next_deadline_ms(self, group_id: str) -> int | None:
        group = self.groups.get(group_id)
        return None if group is None else group.next_deadline_ms()

    def _expire_offsets(self, result: GroupResult) -> None:
        for group_id in tuple(self.groups):
            decided = len(result.records)
            try:
                offset_requests.expire_offsets(self, group_id, result)
            except Exception:
                if len(result.records) > decided:
                    raise  # half way
                logger.exception("expiring offsets: group=%s", group_id)

    def _schedule_expiration(self, result: GroupResult) -> None:
        # Whatever the configuration says: looking must not keep a core busy.
        interval_ms = max(EXPIRATION_MS_MIN, result.settings.offsets_retention_check_interval_ms)
        result.schedule(None, result.now_ms + interval_ms)

    # Requests

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, reply: Reply, result: GroupResult
    ) -> None:
        """Enter a group; whoever comes without a member id may found it."""
        self._join(request, client, reply, result)
        self.schedule(request.group_id, result)

    def _join(
        self, request: JoinGroupRequest, client: ClientInfo, reply: Reply, result: GroupResult
    ) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                consumer_group_requests.join(self, group, request, client, reply, result)
                return
            # Nobody is left who could mind: the group begins anew in the other protocol.
            self.append(result, *group.tombstones())
            group = None
        if group is None:
            if request.member_id:
                result.reply(reply, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = ClassicGroup(request.group_id, result.time_ms)
            result.append(group.record())
            self.groups[request.group_id] = group
        joining.join(group, request, client, reply, result)

    def sync(self, request: SyncGroupRequest, reply: Reply, result: GroupResult) -> None:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.sync(self, group, request, reply, result)
        else:
            syncing.sync(group, request, reply, result)
        self.counts.rebalances += len(result.records)
        self.schedule(request.group_id, result)

    def heartbeat(self, request: HeartbeatRequest, result: GroupResult) -> HeartbeatResponse:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            response = consumer_group_requests.classic_heartbeat(self, group, request, result)
            if result.records or response.error_code:
                self.schedule(request.group_id, result)
            return response
        syncing.heartbeat(group, request, result)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, reply: Reply, result: GroupResult) -> None:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.leave(self, group, request, reply, result)
        else:
            responses = leaving.leave(group, request.members, result)
            result.reply(reply, LeaveGroupResponse(members=responses))
        self.schedule(request.group_id, result)

    def _group_of_member(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
