"""The state of one consumer group, built by its records and by nothing else.

The group epoch moves when somebody joins, leaves or subscribes to something else, or when the
topics change. The target assignment follows it (`assignment_epoch`), and every member walks to
its part of the target on its own, epoch by epoch.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer import records as written
from headrace.groups.consumer.assignors.model import (
    NO_PARTITIONS,
    Partitions,
    TopicIdPartition,
)
from headrace.groups.consumer.members import LEAVE_EPOCH, NOTHING_OWNED, ConsumerMember, MemberState
from headrace.groups.consumer.timers import TimerChange, TimerKind, Timers
from headrace.groups.records import GroupRecord
from headrace.protocol.message import Message
from headrace.protocol.schemas.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

INITIAL_EPOCH: Final = 1
"""Kafka's: the first member brings the second epoch."""


class ResolvedPattern(NamedTuple):
    """The topics a regular expression stood for when it was last looked at."""

    topics: frozenset[str]
    version: int
    time_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """One group of the consumer protocol."""

    type_name: ClassVar[str] = "consumer"
    protocol_type: ClassVar[str] = "consumer"

    group_id: str
    epoch: int = INITIAL_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Who holds each partition, also one it was asked to give up and has not yet."""

    timers: Timers = field(default_factory=Timers, compare=False)
    topics_version: int | None = field(default=None, compare=False)
    """The state of the topics that the epoch reflects; None where it has to be looked at."""
    changed_ms: int | None = field(default=None, compare=False)
    """When the group last moved; None after a load."""

    # What the service asks of every kind of group.

    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if self.is_stable else "Reconciling"

    @property
    def is_stable(self) -> bool:
        return self.epoch == self.assignment_epoch and all(
            member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )

    def is_empty(self) -> bool:
        return not self.members

    def is_joining(self) -> bool:
        """Nobody is about to be a member: joins are answered at once."""
        return False

    def waiting_replies(self) -> list[object]:
        """No request waits here for others."""
        return []

    def check_offset_delete(self) -> None:
        """What the group reads is known, so only that is protected."""

    def offsets_expire_from(self, commit_ms: int) -> int | None:
        """Offsets of such a group age from their commit, not from when the group emptied."""
        return commit_ms

    def subscription(self) -> Callable[[str], bool]:
        """Says of a topic whether the group reads it, after one look at the members."""
        return self.subscribed_topics().__contains__

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms()

    def set_timers(self, changes: Iterable[TimerChange]) -> None:
        """Take over the soft side of a decision, after its records were applied.

        Timers belong to members: what the decision began for somebody whom it then removed or
        replaced is dropped here, and `_apply_member` stops what ran for such a member before.
        """
        for change in changes:
            if change.member_id in self.members:
                self.timers.change(change)

    def loaded(self, now_ms: int, session_timeout_ms: int) -> None:
        """Begin every member's time anew, once the log has been replayed."""
        self.timers.clear()
        # A group that was on its way goes on as quickly as before.
        self.changed_ms = None if self.is_stable else now_ms
        for member in self.members.values():
            session_ms = member.classic.session_timeout_ms if member.classic else session_timeout_ms
            self.timers.change(
                TimerChange(TimerKind.SESSION, member.member_id, now_ms + session_ms)
            )
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self.timers.change(
                    TimerChange(
                        TimerKind.REVOCATION,
                        member.member_id,
                        now_ms + member.rebalance_timeout_ms,
                    )
                )

    def tombstones(self) -> list[GroupRecord]:
        """What erases the group and all its members."""
        return [
            *(
                record
                for member_id in self.members
                for record in written.member_tombstones(self.group_id, member_id)
            ),
            *(
                written.regular_expression_tombstone(self.group_id, pattern)
                for pattern in self.patterns
            ),
            written.target_epoch_tombstone(self.group_id),
            written.group_tombstone(self.group_id),
        ]

    # Looking things up.

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def static_member_as(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The static member of that name, which must be the one that asks."""
        member = self.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced "
                f"by member {member.member_id}.",
            )
        return member

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names a member subscribes to, by name or by pattern; they need not exist."""
        if member.topic_regex is None or member.topic_regex not in self.patterns:
            return member.topic_names
        return member.topic_names | self.patterns[member.topic_regex].topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None where nobody cares."""
        votes = Counter(
            member.server_assignor for member in self.members.values() if member.server_assignor
        )
        return max(votes, key=lambda name: (votes[name], name), default=None)

    # Records.

    def copy(self) -> "ConsumerGroup":
        """A draft to decide on: shares members, which never change, and no timers."""
        return replace(
            self,
            members=dict(self.members),
            target=dict(self.target),
            patterns=dict(self.patterns),
            owners=dict(self.owners),
            timers=Timers(),
        )

    def apply(self, record: GroupRecord) -> None:
        """Change the state as `record` says; kinds that belong to others change nothing."""
        change = _APPLY.get(type(record.key))
        if change is not None:
            change(self, record.key, record.value)

    def _apply_epoch(self, _: Any, value: ConsumerGroupMetadataValue | None) -> None:
        self.epoch = INITIAL_EPOCH if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _apply_target_epoch(
        self, _: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            self.members[key.member_id] = written.with_metadata(
                before or ConsumerMember(key.member_id), value
            )
        elif before is not None:
            self._release(before)
            del self.members[key.member_id]
            self.timers.forget(key.member_id)

    def _apply_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = written.partitions_of(value.topic_partitions)

    def _apply_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        before = self.members.get(key.member_id)
        if before is None:
            # Compaction may have dropped the member's own record, not yet this one's tombstone.
            if value is None:
                return
            before = ConsumerMember(key.member_id)
        self._release(before)
        if value is None:
            self.members[key.member_id] = replace(
                before,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned=NOTHING_OWNED,
                pending_revocation=NOTHING_OWNED,
            )
            return
        member = replace(
            before,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=written.state_of(value.state),
            assigned=written.owned_of(value.assigned_partitions, value.member_epoch),
            pending_revocation=written.owned_of(
                value.partitions_pending_revocation, value.member_epoch
            ),
        )
        self.members[key.member_id] = member
        for partition in (*member.assigned, *member.pending_revocation):
            self.owners[partition] = member.member_id

    def _apply_pattern(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            self.patterns[key.regular_expression] = ResolvedPattern(
                frozenset(value.topics), value.version, value.timestamp
            )

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.pending_revocation):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)


_APPLY: dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._apply_epoch,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._apply_target_epoch,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._apply_member,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._apply_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_pattern,
}

CONSUMER_GROUP_KEYS: frozenset[type[Message]] = frozenset(_APPLY)
"""Kinds of records that make up a consumer group."""
