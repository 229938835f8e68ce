"""The groups of one partition of `__consumer_offsets`: a machine without I/O.

A request changes the state while it is decided, and hands over the records that say so
(`Result.append`). `replay` brings one record into the state when the log is read at a load; both
end with the same state, as far as it is written down at all.
"""

import logging

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.core.shared_calls import call_each
from headrace.groups import consumer_group_requests
from headrace.groups.classic import expiry, joining, leaving, syncing
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.rebalance import join_error
from headrace.groups.consumer.group import CONSUMER_GROUP_KEYS, ConsumerGroup
from headrace.groups.consumer_group_requests import Group
from headrace.groups.offsets import CommittedOffsets, OffsetAndMetadata, committed_in
from headrace.groups.records import GroupRecord
from headrace.groups.result import ClientInfo, Reply, Result
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


class GroupShard:
    """Groups and their offsets."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()

    # Records

    def append(self, result: Result, *records: GroupRecord) -> None:
        """Hand over records whose whole effect is what `replay` makes of them."""
        result.append(*records)
        for record in records:
            self.replay(record)

    def replay(self, record: GroupRecord) -> None:
        """Bring one record into the state; must accept whatever was ever written."""
        key, value = record
        if isinstance(key, OffsetCommitKey):
            self._replay_offset(key, value)
        elif isinstance(key, GroupMetadataKey):
            self._replay_classic(key.group, value)
        elif type(key) in CONSUMER_GROUP_KEYS:
            self._replay_consumer(record)

    def _replay_offset(self, key: OffsetCommitKey, value: object) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if isinstance(value, OffsetCommitValue):
            self.put_offset(key.group, partition, committed_in(value))
        else:
            self.offsets.remove(key.group, partition)

    def put_offset(
        self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata
    ) -> None:
        """What the record of a commit does."""
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

    def loaded(self, result: Result) -> None:
        """The whole log is in; time begins to run for the members in it."""

        def begin(group: Group) -> None:
            if isinstance(group, ConsumerGroup):
                settings = consumer_group_requests.group_context(group.group_id, result).settings
                group.loaded(result.now_ms, settings.session_timeout_ms)
            else:
                group.loaded(result.now_ms)

        call_each(logger, "the time of a group", self.groups.values(), begin)

    # Steps

    def join(
        self, request: JoinGroupRequest, client: ClientInfo, reply: Reply, result: Result
    ) -> None:
        """Enter a group; whoever comes without a member id may found it."""
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

    def sync(self, request: SyncGroupRequest, reply: Reply, result: Result) -> None:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.sync(self, group, request, reply, result)
        else:
            syncing.sync(group, request, reply, result)

    def heartbeat(self, request: HeartbeatRequest, result: Result) -> HeartbeatResponse:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_group_requests.classic_heartbeat(self, group, request, result)
        syncing.heartbeat(group, request, result)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, reply: Reply, result: Result) -> None:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.leave(self, group, request, reply, result)
            return
        responses = leaving.leave(group, request.members, result)
        result.reply(reply, LeaveGroupResponse(members=responses))

    def expire(self, group_id: str, result: Result) -> None:
        """Look what time has done to a group."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            consumer_group_requests.expire(self, group, result)
        elif group is not None:
            expiry.expire(group, result)

    def waiting_replies(self) -> list[Reply]:
        """Everybody who waits for a rebalance."""
        return [token for group in self.groups.values() for token in group.waiting_replies()]

    def next_deadline_ms(self, group_id: str) -> int | None:
        group = self.groups.get(group_id)
        return None if group is None else group.next_deadline_ms()

    def _group_of_member(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
