"""The state of one classic group, and what other requests may ask of it."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum

from headrace.coordinator.result import Reply
from headrace.core.errors import ApiError, ErrorCode, MalformedMessage
from headrace.groups.classic.member import ClassicMember, Protocols
from headrace.groups.records import GroupRecord
from headrace.protocol.schemas.consumer_protocol import (
    METADATA_ITEMS_MAX,
    ConsumerProtocolSubscription,
)
from headrace.protocol.schemas.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

CONSUMER = "consumer"
"""The protocol type of groups whose metadata we can read: ordinary consumers."""


class State(Enum):
    """Kafka's names, as DescribeGroups and ListGroups print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """Members and generation of one group.

    Only what a stable or empty group consists of is written down (`record`); members that are
    joining, parked requests and deadlines live here alone and are lost with the process.
    """

    type_name = "classic"

    def __init__(self, group_id: str, time_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_since_ms = time_ms
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that only stores offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        """ClassicMember ids of static members, by their instance ids."""
        self.pending_join_members: dict[str, int] = {}
        """Ids handed out and not yet used, and when they lapse."""
        self.pending_sync_members: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        """None where the members' metadata cannot be read."""
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.extension_ms: int | None = None
        """While an initial rebalance is delayed: how much longer the delay may become."""
        self.member_added = False
        """Whether somebody joined since the initial delay was last set."""

    # What the service asks of any group

    def state_name(self) -> str:
        return self.state.value

    def is_empty(self) -> bool:
        return not self.members

    def is_joining(self) -> bool:
        """Whether ids were handed out that may still be used."""
        return bool(self.pending_join_members)

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Refuse whoever is not in the group, or was replaced by a newer instance."""
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,  # noqa: ARG002 - for groups of the other kind
    ) -> None:
        """Refuse a commit from outside the generation; anybody may commit for an empty group."""
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may read the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        """Offsets of a live group may go only where we know what it reads."""
        if self.state is not State.EMPTY and self.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def subscription(self) -> Callable[[str], bool]:
        """Says of a topic whether the group reads it."""
        return self.is_subscribed_to

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER and bool(self.members)
        return topic in self.subscribed_topics

    def offsets_expire_from(self, commit_ms: int) -> int | None:
        """The time a committed offset's retention counts from; None while it must stay."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is State.EMPTY:
            return self.state_since_ms if self.state_since_ms >= 0 else commit_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return commit_ms
        return None

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)]

    def next_deadline_ms(self) -> int | None:
        """When `expiry.expire` has to look next; perhaps in vain, never too late."""
        times = [
            member.deadline_ms
            for member in self.members.values()
            if member.deadline_ms is not None and (member.is_new or not member.is_waiting)
        ]
        times += self.pending_join_members.values()
        times += (t for t in (self.join_deadline_ms, self.sync_deadline_ms) if t is not None)
        return min(times, default=None)

    def waiting_replies(self) -> list[Reply]:
        """Joins and syncs that are not answered yet."""
        return [
            token
            for member in self.members.values()
            for token in (member.join_reply, member.sync_reply)
            if token is not None
        ]

    def loaded(self, now_ms: int) -> None:
        """Give every member a full session to show up again."""
        for member in self.members.values():
            member.deadline_ms = now_ms + member.session_timeout_ms

    # Members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.pending_join_members.pop(member.member_id, None)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.discard(member_id)

    def transition_to(self, state: State, time_ms: int) -> None:
        self.previous_state, self.state = self.state, state
        self.state_since_ms = time_ms

    def has_all_members_joined(self) -> bool:
        return not self.pending_join_members and all(
            member.join_reply is not None for member in self.members.values()
        )

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these protocols can be in one group with the others."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        candidates = self.common_protocols()
        return any(not self.members or name in candidates for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        offered = Counter(
            name
            for member in self.members.values()
            for name in {name for name, _ in member.protocols}
        )
        return {name for name, count in offered.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """The protocol that most members like best among those that all of them have."""
        candidates = self.common_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def read_subscriptions(self) -> None:
        """Learn from the members' metadata which topics the group reads."""
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER:
            return
        if self.members and self.protocol is None:
            return
        # Some clients have their own idea of metadata; they then count as reading anything.
        with suppress(MalformedMessage):
            self.subscribed_topics = frozenset(
                topic
                for member in self.members.values()
                for topic in _topics_in(member.metadata(self.protocol))
            )

    # Records

    def record(
        self, assignments: dict[str, bytes] | None = None, time_ms: int | None = None
    ) -> GroupRecord:
        """The group as it is written down; shares and time are its own, or as given."""
        return GroupRecord(
            GroupMetadataKey(group=self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=self.leader,
                current_state_timestamp=self.state_since_ms if time_ms is None else time_ms,
                members=[
                    MemberMetadata(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.metadata(self.protocol),
                        assignment=member.assignment
                        if assignments is None
                        else assignments.get(member.member_id, b""),
                    )
                    for member in self.members.values()
                ],
            ),
        )

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """The group that `record` described: stable, or empty."""
        group = cls(group_id, value.current_state_timestamp)
        group.state = State.STABLE if value.members else State.EMPTY
        group.previous_state = group.state
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for member in _members_of(value.members, value.protocol):
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group.instances[member.instance_id] = member.member_id
        group.read_subscriptions()
        return group


def _members_of(stored: Iterable[MemberMetadata], protocol: str | None) -> Iterable[ClassicMember]:
    for each in stored:
        yield ClassicMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout,
            each.session_timeout,
            ((protocol or "", bytes(each.subscription)),),
            bytes(each.assignment),
        )


def _topics_in(metadata: bytes) -> list[str]:
    """Raises `TooManyItems` for more than anybody subscribes to; they would be made at once."""
    # Version 0 is the front part of every later version; what follows is not for us.
    return ConsumerProtocolSubscription.decode_from(metadata, 0, 2, METADATA_ITEMS_MAX)[0].topics
