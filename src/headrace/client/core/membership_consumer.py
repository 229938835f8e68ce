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
from headrace.client.core.failures import error_for
from headrace.client.core.group_models import NOBODY, GroupIdentity
from headrace.client.core.membership import (
    PASSING,
    Change,
    LookUp,
    Membership,
    Notice,
    SeenTopic,
    Send,
    Step,
    Subscription,
    Wait,
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
_LOOKUP_AGAIN_MS = 500
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
        self._changing: frozenset[IdPartition] = frozenset()
        self._names: dict[UUID, str] = {}
        # The last target that has been reached; None until the first.
        self._reached: frozenset[IdPartition] | None = None
        # What the broker knows of us; None: tell it everything.
        self._known: tuple[Subscription, frozenset[IdPartition]] | None = None
        self._telling: tuple[Subscription, frozenset[IdPartition]] | None = None
        self._is_leaving = False
        # Fenced because the program was away: only its next poll makes us join again.
        self._is_away = False
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
            return NOBODY
        return GroupIdentity(self._member_id, self._epoch, self._settings.group_instance_id)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.error = None
        if self._state in (_State.IDLE, _State.FAILED):
            self._join_anew()

    # -- what to do next

    def step(self, now_ms: float) -> Step:
        if self._state not in (_State.JOINING, _State.JOINED):
            return Wait(float("inf"))
        overdue_at_ms = self.clock.overdue_at_ms(now_ms)
        if now_ms >= overdue_at_ms:
            self._is_leaving = True
            return self._send(self._leave_message())
        if self._retry_at_ms > now_ms:
            return Wait(min(self._retry_at_ms, overdue_at_ms))
        if self._has_news() or now_ms >= self._heartbeat_at_ms:
            return self._send(self._message())
        unnamed = self._unnamed()
        if unnamed and now_ms >= self._lookup_at_ms:
            return LookUp(ids=unnamed)
        self._notify()
        wait_ms = min(self._heartbeat_at_ms, overdue_at_ms)
        return Wait(min(wait_ms, self._lookup_at_ms) if unnamed else wait_ms)

    def _has_news(self) -> bool:
        if self._known is None or self._state is _State.JOINING:
            return True
        return self._known != (self.subscription, self._owned)

    def _send(self, message: ConsumerGroupHeartbeatRequest) -> Send:
        return Send(message, ConsumerGroupHeartbeatResponse, version_min=_VERSION_MIN)

    def _message(self) -> ConsumerGroupHeartbeatRequest:
        settings, known = self._settings, self._known
        self._telling = (self.subscription, self._owned)
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

    def _leave_message(self) -> ConsumerGroupHeartbeatRequest:
        static = self._settings.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=_LEAVE_STATIC if static else _LEAVE,
            instance_id=self._settings.group_instance_id,
        )

    # -- what came of it

    def answered(self, outcome: Message | HeadraceError, now_ms: float) -> None:
        if self._is_leaving:
            self._is_leaving = False
            self._is_away = True
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
        self._known = self._telling
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
        elif error.code in PASSING:
            self._failures += 1
            self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)
            # The broker may or may not have heard us: say everything once more.
            self._known = None
        else:
            self._state = _State.FAILED
            self.error = error
            self._lose()

    def _fence(self) -> None:
        self._state = _State.FENCED
        self._lose()
        if not self._owned and not self._is_away:
            self._join_anew()

    def _lose(self) -> None:
        self._epoch = _JOIN
        if self._notice is not None and self._is_shown:
            # The program hears of what it is being told just now as if it had taken effect.
            if self._notice.change is Change.ASSIGNED:
                self._owned |= self._changing
            elif self._notice.change is Change.REVOKED:
                self._owned -= self._changing
        self._notice = None
        if self._owned:
            self._tell(Change.LOST, self._owned)

    def _join_anew(self) -> None:
        self._state = _State.JOINING
        self._epoch = _JOIN
        self._known = self._target = self._reached = None
        self._owned = frozenset()
        self._is_away = False
        self._retry_at_ms = 0.0

    def looked_up(self, topics: Collection[SeenTopic] | None, now_ms: float) -> None:
        for topic in topics or ():
            self._names[topic.topic_id] = topic.name
        self._lookup_at_ms = now_ms + _LOOKUP_AGAIN_MS
        self._notify()

    def _unnamed(self) -> frozenset[UUID]:
        return frozenset(each for each, _ in self._target or () if each not in self._names)

    # -- reaching the target

    def come_back(self) -> bool:
        if self._state is _State.FENCED and self._notice is None:
            self._join_anew()
            return True
        return False

    def _notify(self) -> None:
        """Say what must change next, if anything, unless something is still to be told."""
        if self._notice is not None or self._target is None or self._target == self._reached:
            return
        # Topics without a name yet are left for later; the broker waits until we own them.
        wanted = frozenset(each for each in self._target if each[0] in self._names)
        gone, new = self._owned - wanted, wanted - self._owned
        if gone:
            self._tell(Change.REVOKED, gone)
        elif new or (self._reached is None and wanted == self._target):
            self._tell(Change.ASSIGNED, new)
        elif wanted == self._target:
            self._reached = self._target

    def _tell(self, change: Change, partitions: frozenset[IdPartition]) -> None:
        self._notice = Notice(change, self._named(partitions))
        self._is_shown = False
        self._changing = partitions

    def acknowledge(self, notice: Notice) -> None:
        if notice is not self._notice:
            return  # overtaken by events
        self._notice = None
        if notice.change is Change.LOST:
            self._owned = frozenset()
            if self._state is _State.FENCED:
                self._join_anew()
            return
        if notice.change is Change.REVOKED:
            self._owned -= self._changing
        else:
            # Though the broker may have changed its mind since: then they are revoked next.
            self._owned |= self._changing
            if self._reached is None:
                self._reached = frozenset()
        self._notify()

    # -- the end

    def farewell(self) -> Notice | None:
        if not self._owned:
            return None
        is_member = self._state is _State.JOINED
        return Notice(Change.REVOKED if is_member else Change.LOST, self._named(self._owned))

    def leave_request(self, reason: str) -> Send | None:  # noqa: ARG002 - the classic one's
        was_heard = self._known is not None or self._telling is not None
        self._state = _State.IDLE
        self._epoch = _JOIN
        self._notice = self._known = self._telling = None
        self._owned = frozenset()
        self.error = None
        return self._send(self._leave_message()) if was_heard else None

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
