"""A member of a classic group: join, let the leader divide, sync, heartbeat; begin anew.

    IDLE --subscribe--> UNJOINED --> JOINING --follower--> SYNCING --> STABLE
                           ^           |                     ^           |
                           |           +--leader--> DIVIDING-+           |
                           +-- rebalance, new topics, lost generation ---+

With an eager assignor all partitions are given up before every join. With a cooperative one
they are kept, and after the sync only those that others shall have are given up; one more round
then hands them out. The old generation's commits are possible until a join is answered.
"""

import re
from collections import deque
from collections.abc import Collection
from enum import Enum, auto

from headrace.client.core.assignors import ASSIGN, COOPERATIVE, JoinedMember
from headrace.client.core.backoff import Backoff
from headrace.client.core.classic_requests import heartbeat, join, leave, sync
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import error_for
from headrace.client.core.group_models import NO_MEMBER, GroupIdentity
from headrace.client.core.member_metadata import (
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from headrace.client.core.membership import (
    RETRIABLE_CODES,
    Action,
    CoordinatorRequest,
    FindTopics,
    FoundTopic,
    Membership,
    PartitionsChange,
    RebalanceNotice,
    Subscription,
    WaitUntil,
)
from headrace.core.errors import ErrorCode, HeadraceError, MalformedMessage
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupResponse

_NO_GENERATION = -1
# A subscribed topic that does not exist may be created any moment.
_MISSING_TOPICS_RETRY_MS = 2_000


class _State(Enum):
    IDLE = auto()
    UNJOINED = auto()
    JOINING = auto()
    ASSIGNING = auto()
    SYNCING = auto()
    STABLE = auto()
    STALE = auto()
    FAILED = auto()


class ClassicMembership(Membership):
    """The machine. `topics_age_ms_max` is how often the leader looks for new partitions."""

    def __init__(
        self, settings: ConsumerSettings, backoff: Backoff, topics_age_ms_max: float
    ) -> None:
        super().__init__(settings)
        self._backoff = backoff
        self._topics_age_ms_max = topics_age_ms_max
        self._is_cooperative = all(name in COOPERATIVE for name in settings.assignors)
        self._state = _State.IDLE
        self._member_id = ""
        self._generation = _NO_GENERATION
        # The generation our partitions are from, told to the leader with them.
        self._owned_generation = _NO_GENERATION
        self._assignor = ""
        self._owned: frozenset[TopicPartition] = frozenset()
        self._pending_notices: deque[RebalanceNotice] = deque()
        self._must_rejoin = False
        self._is_leaving = False
        self._pattern: re.Pattern[str] | None = None
        self._topics: frozenset[str] | None = frozenset()
        # As the leader: who is in, and how many partitions each topic had when we divided.
        self._members: list[JoinedMember] = []
        self._counts: dict[str, int] | None = None
        self._assignments: dict[str, bytes] = {}
        self._heartbeat_at_ms = 0.0
        self._lookup_at_ms = float("inf")
        self._retry_at_ms = 0.0
        self._failures = 0

    # -- what consumers see

    @property
    def owned(self) -> Collection[TopicPartition]:
        return sorted(self._owned)

    @property
    def is_member(self) -> bool:
        return self._state is _State.STABLE

    @property
    def is_awaiting_member_id(self) -> bool:
        is_static = self._settings.group_instance_id is not None
        return self._state is _State.JOINING and not self._member_id and not is_static

    @property
    def identity(self) -> GroupIdentity:
        # Also while we join anew: until then the old generation is in force, and its commits are.
        return NO_MEMBER if self._generation == _NO_GENERATION else self._current_identity

    @property
    def _current_identity(self) -> GroupIdentity:
        return GroupIdentity(self._member_id, self._generation, self._settings.group_instance_id)

    def subscribe(self, subscription: Subscription) -> None:
        self._pattern = None if subscription.pattern is None else re.compile(subscription.pattern)
        self.subscription = subscription
        # Which topics a pattern means is looked up before the next join.
        self._topics = subscription.topics if self._pattern is None else None
        self.error = None
        self._must_rejoin = True
        if self._state in (_State.IDLE, _State.FAILED):
            self._state = _State.UNJOINED

    # -- what to do next

    def next_action(self, now_ms: float) -> Action:
        if self._state in (_State.IDLE, _State.STALE, _State.FAILED):
            return WaitUntil(float("inf"))
        overdue_at_ms = self.poll_timer.expires_at_ms(now_ms)
        if now_ms >= overdue_at_ms and self._state in (_State.UNJOINED, _State.STABLE):
            return self._leave_as_stale()
        if self._retry_at_ms > now_ms:
            return WaitUntil(self._retry_at_ms)
        if self._state is _State.ASSIGNING:
            return FindTopics(names=self._topics_of_all())
        if self._state is _State.SYNCING:
            return sync(self._settings, self._current_identity, self._assignor, self._assignments)
        if self._topics is None or (self._state is _State.STABLE and now_ms >= self._lookup_at_ms):
            return FindTopics(names=None if self._pattern is not None else self._topics_of_all())
        if self._wants_to_join() and self._is_ready_to_join():
            return self._join()
        if self._state is _State.UNJOINED:
            return WaitUntil(overdue_at_ms)  # for the program, which is told what it has lost
        if now_ms >= self._heartbeat_at_ms:
            return heartbeat(self._settings, self._current_identity)
        return WaitUntil(min(self._heartbeat_at_ms, self._lookup_at_ms, overdue_at_ms))

    def _wants_to_join(self) -> bool:
        return self._state is _State.UNJOINED or self._must_rejoin

    def _is_ready_to_join(self) -> bool:
        """Whether the program has given up what it must; if not, it is told to."""
        if self._notice is not None:
            return False
        if self._state is _State.UNJOINED and self._generation == _NO_GENERATION:
            self._add_notice(PartitionsChange.LOST, self._owned)
        elif not self._is_cooperative:
            self._add_notice(PartitionsChange.REVOKED, self._owned)
        else:
            topics = self._topics or frozenset()
            gone = frozenset(each for each in self._owned if each.topic not in topics)
            self._add_notice(PartitionsChange.REVOKED, gone)
        return self._notice is None

    def _join(self) -> CoordinatorRequest:
        self._state = _State.JOINING
        self._must_rejoin = False
        metadata = encode_subscription(
            self._topics or (), self._owned, self._owned_generation, self._settings.rack
        )
        return join(self._settings, self._member_id, metadata)

    def _topics_of_all(self) -> frozenset[str]:
        return frozenset(topic for member in self._members for topic in member.topics)

    def _leave_as_stale(self) -> Action:
        """The program does not poll any more: let others have its partitions."""
        send = leave(self._settings, self._member_id, "no poll within max_poll_interval_ms")
        if send is None:
            self._become_stale()
            return WaitUntil(float("inf"))
        self._is_leaving = True
        return send

    def _become_stale(self) -> None:
        self._forget_generation(forget_member=True)
        self._state = _State.STALE
        self._add_notice(PartitionsChange.LOST, self._owned)

    # -- what came of it

    def on_response(self, outcome: Message | HeadraceError, now_ms: float) -> None:
        if self._is_leaving:
            self._is_leaving = False
            self._become_stale()
            return
        if self._state in (_State.IDLE, _State.FAILED):
            return  # unsubscribed meanwhile
        if isinstance(outcome, HeadraceError):
            self._failed(outcome, now_ms)
            return
        code = getattr(outcome, "error_code", 0)
        if code:
            if isinstance(outcome, JoinGroupResponse) and code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = outcome.member_id
                self._state = _State.UNJOINED
                return
            what = f"group {self._settings.group_id!r}"
            self._failed(error_for(code, None, what), now_ms)
            return
        self._failures = 0
        try:
            if isinstance(outcome, JoinGroupResponse):
                self._joined(outcome)
            elif isinstance(outcome, SyncGroupResponse):
                self._synced(outcome, now_ms)
            else:
                self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        except MalformedMessage as error:  # from another member, by way of the broker
            self._failed(error, now_ms)

    def _joined(self, response: JoinGroupResponse) -> None:
        self._generation = response.generation_id
        self._member_id = response.member_id
        self._assignor = response.protocol_name or ""
        self._members, self._counts, self._assignments = [], None, {}
        self._state = _State.SYNCING
        if response.leader == response.member_id:
            self._members = [decode_member(member) for member in response.members]
            # A static leader that came back is told not to divide anew what others have already.
            if not response.skip_assignment:
                self._state = _State.ASSIGNING

    def _synced(self, response: SyncGroupResponse, now_ms: float) -> None:
        assigned = frozenset(decode_assignment(response.assignment))
        self._state = _State.STABLE
        self._owned_generation = self._generation
        self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        self._schedule_lookup(now_ms)
        gone, new = self._owned - assigned, assigned - self._owned
        if gone:
            self._add_notice(PartitionsChange.REVOKED, gone)
            # Whoever shall have them gets them in the next round.
            self._must_rejoin = True
        self._add_notice(PartitionsChange.ASSIGNED, new, even_if_empty=True)

    def _schedule_lookup(self, now_ms: float) -> None:
        """When to look at topics next: the leader for partitions, a pattern for names."""
        self._lookup_at_ms = float("inf")
        if self._members or self._pattern is not None:
            self._lookup_at_ms = now_ms + self._topics_age_ms_max
        if self._members and any(not (self._counts or {}).get(t) for t in self._topics_of_all()):
            self._lookup_at_ms = now_ms + min(self._topics_age_ms_max, _MISSING_TOPICS_RETRY_MS)

    def topics_found(self, topics: Collection[FoundTopic] | None, now_ms: float) -> None:
        if topics is None:
            self._failures += 1
            self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)
            return
        if self._pattern is not None:
            self._match(self._pattern, topics)
        wanted = self._topics_of_all()
        counts = {topic.name: topic.partitions for topic in topics if topic.name in wanted}
        if self._state is _State.ASSIGNING:
            self._assign(counts)
        elif self._counts is None:
            self._counts = counts  # an assignment that we did not make ourselves
        elif self._members and counts != self._counts:
            self._must_rejoin = True
        self._schedule_lookup(now_ms)

    def _match(self, pattern: re.Pattern[str], topics: Collection[FoundTopic]) -> None:
        if self._state is _State.ASSIGNING:
            return  # those of all members were asked for, not all there are
        names = frozenset(
            topic.name
            for topic in topics
            if not topic.is_internal and pattern.fullmatch(topic.name)
        )
        if self._topics != names:
            self._topics = names
            self._must_rejoin = True

    def _assign(self, counts: dict[str, int]) -> None:
        self._counts = counts
        assignments = ASSIGN[self._assignor](counts, self._members)
        self._assignments = {each: encode_assignment(share) for each, share in assignments.items()}
        self._state = _State.SYNCING

    def _failed(self, error: HeadraceError, now_ms: float) -> None:
        code, state = error.code, self._state
        if state is not _State.STABLE:
            self._state = _State.UNJOINED
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_rejoin = True
            if state is _State.STABLE:
                # Until we join, the broker wants to hear from us as before.
                self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._forget_generation(forget_member=code is ErrorCode.UNKNOWN_MEMBER_ID)
            self._state = _State.UNJOINED
        elif code in RETRIABLE_CODES:
            self._failures += 1
            self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)
        else:
            self._forget_generation(forget_member=True)
            self._state = _State.FAILED
            self.error = error
            self._add_notice(PartitionsChange.LOST, self._owned)

    def _forget_generation(self, *, forget_member: bool) -> None:
        """The group has gone on without us: what we have is no longer ours."""
        if self._notice is not None and self._is_shown:
            # The program hears of what it is being told just now as if it had taken effect.
            self._apply(self._notice)
        self._notice = None
        self._pending_notices.clear()
        self._generation = self._owned_generation = _NO_GENERATION
        if forget_member:
            self._member_id = ""

    # -- telling the program

    def _add_notice(
        self,
        change: PartitionsChange,
        partitions: frozenset[TopicPartition],
        *,
        even_if_empty: bool = False,
    ) -> None:
        if partitions or even_if_empty:
            self._pending_notices.append(RebalanceNotice(change, tuple(sorted(partitions))))
            self._next_notice()

    def _next_notice(self) -> None:
        if self._notice is None and self._pending_notices:
            self._notice = self._pending_notices.popleft()
            self._is_shown = False

    def _apply(self, notice: RebalanceNotice) -> None:
        if notice.change is PartitionsChange.ASSIGNED:
            self._owned |= set(notice.partitions)
        else:
            self._owned -= set(notice.partitions)

    def acknowledge(self, notice: RebalanceNotice) -> None:
        if notice is not self._notice:
            return  # overtaken by events
        self._notice = None
        self._apply(notice)
        self._next_notice()

    def rejoin_if_stale(self) -> bool:
        if self._state is _State.STALE and self._notice is None:
            self._state = _State.UNJOINED
            return True
        return False

    # -- the end

    def leave_notice(self) -> RebalanceNotice | None:
        if not self._owned:
            return None
        is_member = self._generation != _NO_GENERATION
        return RebalanceNotice(
            PartitionsChange.REVOKED if is_member else PartitionsChange.LOST,
            tuple(sorted(self._owned)),
        )

    def leave_request(self, reason: str) -> CoordinatorRequest | None:
        member_id = self._member_id
        self._forget_generation(forget_member=True)
        self._state = _State.IDLE
        self._owned = frozenset()
        self.error = None
        return leave(self._settings, member_id, reason)

    def commit_refused(self, error: HeadraceError) -> None:
        if self._state is not _State.STABLE:
            return
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_rejoin = True
        elif error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._forget_generation(forget_member=error.code is ErrorCode.UNKNOWN_MEMBER_ID)
            self._state = _State.UNJOINED
