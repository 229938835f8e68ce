"""A member of a KIP-848 group: the broker assigns, heartbeats carry everything.

    IDLE --subscribe--> JOINING --epoch > 0--> JOINED --leave--> IDLE
                          ^                      |
                          |     fenced, unknown, or away for too long
                          +----- FENCED <--------+      (any) --refused--> FAILED

An assignment is reached in steps: what we must give up is revoked first, then what is new is
assigned. Once the program has taken a step, a heartbeat tells the broker what we own. The rest is
read throughout.
"""

from collections.abc import Collection
from enum import Enum, auto
from uuid import UUID

from headrace.client.core.backoff import Backoff
from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import error_for
from headrace.client.core.group_models import NO_MEMBER, GroupIdentity
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
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

_JOIN, _LEAVE, _LEAVE_STATIC = 0, -1, -2
_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
# Unnamed topics are asked for again after this long: their metadata may be on its way.
_LOOKUP_RETRY_MS = 500
# Patterns and client-made member ids came with v1.
_VERSION_MIN = 1

IdPartition = tuple[UUID, int]


class _State(Enum):
    IDLE = auto()
    JOINING = auto()
    JOINED = auto()
    FENCED = auto()
    FAILED = auto()


class ConsumerMembership(Membership):
    """The machine; `member_id` is made once and kept for as long as the consumer lives."""

    def __init__(self, settings: ConsumerSettings, member_id: str, backoff: Backoff) -> None:
        super().__init__(settings)
        self._member_id = member_id
        self._backoff = backoff
        self._state = _State.IDLE
        self._epoch = _JOIN
        self._target: frozenset[IdPartition] | None = None
        self._owned: frozenset[IdPartition] = frozenset()
        # The partitions of the notice that is being told.
        self._notice_partitions: frozenset[IdPartition] = frozenset()
        self._names: dict[UUID, str] = {}
        # The last target that has been reached; None until the first.
        self._reached_target: frozenset[IdPartition] | None = None
        # What the broker knows of us; None: tell it everything.
        self._acknowledged_state: tuple[Subscription, frozenset[IdPartition]] | None = None
        self._sent_state: tuple[Subscription, frozenset[IdPartition]] | None = None
        self._is_leaving = False
        # Fenced because the program was away: only its next poll makes us join again.
        self._is_stale = False
        self._heartbeat_at_ms = 0.0
        self._lookup_at_ms = 0.0
        self._retry_at_ms = 0.0
        self._failures = 0

    # -- what consumers see

    @property
    def owned(self) -> Collection[TopicPartition]:
        return self._named(self._owned)

    @property
    def is_member(self) -> bool:
        return self._state is _State.JOINED

    @property
    def identity(self) -> GroupIdentity:
        if self._epoch <= 0:
            return NO_MEMBER
        return GroupIdentity(self._member_id, self._epoch, self._settings.group_instance_id)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.error = None
        if self._state in (_State.IDLE, _State.FAILED):
            self._rejoin()

    # -- what to do next

    def next_action(self, now_ms: float) -> Action:
        if self._state not in (_State.JOINING, _State.JOINED):
            return WaitUntil(float("inf"))
        overdue_at_ms = self.poll_timer.expires_at_ms(now_ms)
        if now_ms >= overdue_at_ms:
            self._is_leaving = True
            return self._send(self._leave_heartbeat())
        if self._retry_at_ms > now_ms:
            return WaitUntil(min(self._retry_at_ms, overdue_at_ms))
        if self._has_changes() or now_ms >= self._heartbeat_at_ms:
            return self._send(self._heartbeat_request())
        unresolved = self._unresolved_topic_ids()
        if unresolved and now_ms >= self._lookup_at_ms:
            return FindTopics(ids=unresolved)
        self._notify()
        wait_ms = min(self._heartbeat_at_ms, overdue_at_ms)
        return WaitUntil(min(wait_ms, self._lookup_at_ms) if unresolved else wait_ms)

    def _has_changes(self) -> bool:
        if self._acknowledged_state is None or self._state is _State.JOINING:
            return True
        return self._acknowledged_state != (self.subscription, self._owned)

    def _send(self, message: ConsumerGroupHeartbeatRequest) -> CoordinatorRequest:
        return CoordinatorRequest(message, ConsumerGroupHeartbeatResponse, version_min=_VERSION_MIN)

    def _heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        settings, known = self._settings, self._acknowledged_state
        self._sent_state = (self.subscription, self._owned)
        message = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.group_instance_id,
        )
        if known is None:
            message.rack_id = settings.rack or None
            message.rebalance_timeout_ms = settings.max_poll_interval_ms
            message.server_assignor = settings.server_assignor
        if known is None or known[0] != self.subscription:
            message.subscribed_topic_names = sorted(self.subscription.topics)
            message.subscribed_topic_regex = self.subscription.pattern
            if known is not None and known[0].pattern is not None and not self.subscription.pattern:
                message.subscribed_topic_regex = ""
        if known is None or known[1] != self._owned:
            message.topic_partitions = _by_topic(self._owned)
        return message

    def _leave_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        static = self._settings.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=_LEAVE_STATIC if static else _LEAVE,
            instance_id=self._settings.group_instance_id,
        )

    # -- what came of it

    def on_response(self, outcome: Message | HeadraceError, now_ms: float) -> None:
        if self._is_leaving:
            self._is_leaving = False
            self._is_stale = True
            self._fence()
            return
        if self._state not in (_State.JOINING, _State.JOINED):
            return  # unsubscribed meanwhile
        if isinstance(outcome, HeadraceError):
            self._failed(outcome, now_ms)
            return
        assert isinstance(outcome, ConsumerGroupHeartbeatResponse)
        if outcome.error_code:
            what = f"heartbeat in group {self._settings.group_id!r}"
            self._failed(error_for(outcome.error_code, outcome.error_message, what), now_ms)
            return
        self._failures = 0
        self._acknowledged_state = self._sent_state
        self._state = _State.JOINED
        self._epoch = outcome.member_epoch
        self._heartbeat_at_ms = now_ms + outcome.heartbeat_interval_ms
        if outcome.assignment is not None:
            self._target = frozenset(
                (topic.topic_id, number)
                for topic in outcome.assignment.topic_partitions
                for number in topic.partitions
            )
            self._lookup_at_ms = now_ms
        self._notify()

    def _failed(self, error: HeadraceError, now_ms: float) -> None:
        if error.code in _FENCED:
            self._fence()
        elif error.code in RETRIABLE_CODES:
            self._failures += 1
            self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)
            # The broker may or may not have heard us: say everything once more.
            self._acknowledged_state = None
        else:
            self._state = _State.FAILED
            self.error = error
            self._lose_partitions()

    def _fence(self) -> None:
        self._state = _State.FENCED
        self._lose_partitions()
        if not self._owned and not self._is_stale:
            self._rejoin()

    def _lose_partitions(self) -> None:
        self._epoch = _JOIN
        if self._notice is not None and self._is_shown:
            # The program hears of what it is being told just now as if it had taken effect.
            if self._notice.change is PartitionsChange.ASSIGNED:
                self._owned |= self._notice_partitions
            elif self._notice.change is PartitionsChange.REVOKED:
                self._owned -= self._notice_partitions
        self._notice = None
        if self._owned:
            self._set_notice(PartitionsChange.LOST, self._owned)

    def _rejoin(self) -> None:
        self._state = _State.JOINING
        self._epoch = _JOIN
        self._acknowledged_state = self._target = self._reached_target = None
        self._owned = frozenset()
        self._is_stale = False
        self._retry_at_ms = 0.0

    def topics_found(self, topics: Collection[FoundTopic] | None, now_ms: float) -> None:
        for topic in topics or ():
            self._names[topic.topic_id] = topic.name
        self._lookup_at_ms = now_ms + _LOOKUP_RETRY_MS
        self._notify()

    def _unresolved_topic_ids(self) -> frozenset[UUID]:
        return frozenset(each for each, _ in self._target or () if each not in self._names)

    # -- reaching the target

    def rejoin_if_stale(self) -> bool:
        if self._state is _State.FENCED and self._notice is None:
            self._rejoin()
            return True
        return False

    def _notify(self) -> None:
        """Say what must change next, if anything, unless something is still to be told."""
        if self._notice is not None or self._target is None or self._target == self._reached_target:
            return
        # Topics without a name yet are left for later; the broker waits until we own them.
        wanted = frozenset(each for each in self._target if each[0] in self._names)
        gone, new = self._owned - wanted, wanted - self._owned
        if gone:
            self._set_notice(PartitionsChange.REVOKED, gone)
        elif new or (self._reached_target is None and wanted == self._target):
            self._set_notice(PartitionsChange.ASSIGNED, new)
        elif wanted == self._target:
            self._reached_target = self._target

    def _set_notice(self, change: PartitionsChange, partitions: frozenset[IdPartition]) -> None:
        self._notice = RebalanceNotice(change, self._named(partitions))
        self._is_shown = False
        self._notice_partitions = partitions

    def acknowledge(self, notice: RebalanceNotice) -> None:
        if notice is not self._notice:
            return  # overtaken by events
        self._notice = None
        if notice.change is PartitionsChange.LOST:
            self._owned = frozenset()
            if self._state is _State.FENCED:
                self._rejoin()
            return
        if notice.change is PartitionsChange.REVOKED:
            self._owned -= self._notice_partitions
        else:
            # Though the broker may have changed its mind since: then they are revoked next.
            self._owned |= self._notice_partitions
            if self._reached_target is None:
                self._reached_target = frozenset()
        self._notify()

    # -- the end

    def leave_notice(self) -> RebalanceNotice | None:
        if not self._owned:
            return None
        is_member = self._state is _State.JOINED
        return RebalanceNotice(
            PartitionsChange.REVOKED if is_member else PartitionsChange.LOST,
            self._named(self._owned),
        )

    def leave_request(self, reason: str) -> CoordinatorRequest | None:  # noqa: ARG002 - the classic one's
        was_heard = self._acknowledged_state is not None or self._sent_state is not None
        self._state = _State.IDLE
        self._epoch = _JOIN
        self._notice = self._acknowledged_state = self._sent_state = None
        self._owned = frozenset()
        self.error = None
        return self._send(self._leave_heartbeat()) if was_heard else None

    def commit_refused(self, error: HeadraceError) -> None:
        if self._state is _State.JOINED and error.code in _FENCED:
            self._fence()

    def _name(self, each: IdPartition) -> TopicPartition:
        return TopicPartition(self._names[each[0]], each[1])

    def _named(self, partitions: Collection[IdPartition]) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._name(each) for each in partitions))


def _by_topic(partitions: Collection[IdPartition]) -> list[OwnedTopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [OwnedTopicPartitions(topic_id=key, partitions=each) for key, each in topics.items()]
