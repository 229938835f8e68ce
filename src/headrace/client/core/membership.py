"""What it is to be a member of a group, whichever protocol the group speaks.

A membership is a machine: `next_action` says what to do next (send a request, find topics, wait),
`on_response` and `topics_found` take what came of it. What the program must be told it tells as a
`RebalanceNotice`: the face shows it to the program during a poll and then calls `acknowledge`.
Only then does the machine go on, so a program never reads a partition that its callback has not
seen.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.group_models import NO_MEMBER, GroupIdentity
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.protocol.message import Message


class PartitionsChange(Enum):
    """What happens to partitions: given, taken in order, or already somebody else's."""

    ASSIGNED = auto()
    REVOKED = auto()
    LOST = auto()


@dataclass(frozen=True, eq=False, slots=True)
class RebalanceNotice:
    """A change that the program must see before the membership goes on."""

    change: PartitionsChange
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorRequest:
    """Send this to the coordinator."""

    request: Message
    response_class: type[Message]
    timeout_ms: float | None = None
    version_min: int = 0


@dataclass(frozen=True, slots=True)
class FindTopics:
    """Learn about topics, by id or by name; `names` None means every topic there is."""

    ids: frozenset[UUID] = frozenset()
    names: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before this time, unless something happens."""

    until_ms: float


Action = CoordinatorRequest | FindTopics | WaitUntil


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """What a look-up found out about a topic."""

    name: str
    topic_id: UUID
    partitions: int
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics a program asked for: by name, or by a pattern."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


def make_subscription(topics: Collection[str], pattern: str | None) -> Subscription:
    """Check what `subscribe` was given."""
    if isinstance(topics, str):
        raise TypeError(f"topics must be a collection of names, as [{topics!r}]")
    if bool(topics) == (pattern is not None):
        raise ValueError("subscribe to topics or to a pattern, one of the two")
    if pattern == "":
        raise ValueError("an empty pattern matches nothing")
    return Subscription(frozenset(topics), pattern)


class PollTimer:
    """When the program last asked for records; one that no longer asks must leave the group."""

    __slots__ = ("_limit_ms", "_polls_before", "_since_ms", "polls")

    def __init__(self, limit_ms: float) -> None:
        self._limit_ms = limit_ms
        # None while a poll is under way: it may wait as long as it likes.
        self._since_ms: float | None = None
        # Counts what iteration hands out without a look at the time; any thread may add to it.
        self.polls = 0
        self._polls_before = 0

    def begin(self) -> None:
        self._since_ms = None

    def end(self, now_ms: float) -> None:
        self._since_ms = now_ms

    def expires_at_ms(self, now_ms: float) -> float:
        """When the program will have been away for too long, as far as can be said now."""
        if self.polls != self._polls_before:
            self._polls_before = self.polls
            if self._since_ms is not None:
                self._since_ms = now_ms
        return (now_ms if self._since_ms is None else self._since_ms) + self._limit_ms


class Membership(ABC):
    """The side of a membership that consumers see."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self.poll_timer = PollTimer(settings.max_poll_interval_ms)
        self.subscription = Subscription()
        # What ends the membership until the next `subscribe`; polls raise it.
        self.error: HeadraceError | None = None
        self._notice: RebalanceNotice | None = None
        # Whether the program may be busy with the notice at this moment.
        self._is_shown = False

    @property
    @abstractmethod
    def owned(self) -> Collection[TopicPartition]:
        """The partitions that the program has been given and not been told to give up."""

    @property
    def identity(self) -> GroupIdentity:
        """Who commits, at this moment."""
        return NO_MEMBER

    @property
    @abstractmethod
    def is_member(self) -> bool:
        """Whether the group counts us in, as far as we know."""

    @property
    def is_awaiting_member_id(self) -> bool:
        """Whether a request is under way whose answer tells the name that we must leave by."""
        return False

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """Want these topics from now on; joins the group if need be."""

    @abstractmethod
    def next_action(self, now_ms: float) -> Action:
        """What to do next; the first two kinds are to be answered before the next call."""

    @abstractmethod
    def on_response(self, outcome: Message | HeadraceError, now_ms: float) -> None:
        """What came of the last `CoordinatorRequest`."""

    @abstractmethod
    def topics_found(self, topics: Collection[FoundTopic] | None, now_ms: float) -> None:
        """What came of the last `FindTopics`; None if it failed."""

    @property
    def has_notice(self) -> bool:
        """Whether there is something to tell; cheap, any thread may ask."""
        return self._notice is not None

    def notice(self) -> RebalanceNotice | None:
        """What the program must be told next; it counts as shown from here on."""
        self._is_shown = self._notice is not None
        return self._notice

    def rejoin_if_stale(self) -> bool:
        """The program polls: join again if it had been away; whether there is now work to do."""
        return False

    @abstractmethod
    def acknowledge(self, notice: RebalanceNotice) -> None:
        """The program has been told and is done with it."""

    @abstractmethod
    def leave_notice(self) -> RebalanceNotice | None:
        """What the program must be told before we leave, if anything; nothing changes yet."""

    @abstractmethod
    def leave_request(self, reason: str) -> CoordinatorRequest | None:
        """Stop being a member; the last request, if the group must be told that we go."""

    @abstractmethod
    def commit_refused(self, error: HeadraceError) -> None:
        """A commit failed: what does that say about the membership?"""


# After these the same membership can go on, with the same or another coordinator.
RETRIABLE_CODES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
