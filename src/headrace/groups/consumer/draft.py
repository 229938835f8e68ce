"""A decision in the making: the records so far, and the group as it is with them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.migration import ClassicGroupState
from headrace.groups.consumer.settings import ConsumerGroupSettings
from headrace.groups.consumer.timers import TimerChange, TimerKind
from headrace.groups.consumer.topics import TopicsView
from headrace.groups.records import GroupRecord

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What a request comes to: records to append and apply, then `settle` and the answer."""

    response: R
    records: Sequence[GroupRecord] = ()
    timers: Sequence[TimerChange] = ()
    topics_version: int | None = None
    changed_ms: int | None = None
    downgraded: ClassicGroupState | None = None
    """The classic group that is left of it; the records hold it, with fewer details."""

    def set_unrecorded_state(self, group: ConsumerGroup) -> None:
        """Take over what is in no record, once the records are applied to `group`."""
        group.set_timers(self.timers)
        if self.topics_version is not None:
            group.topics_version = self.topics_version
        if self.changed_ms is not None:
            group.changed_ms = self.changed_ms


def everything_visible(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class GroupContext:
    """Everything outside the group that a decision about it depends on."""

    topics: TopicsView
    settings: ConsumerGroupSettings
    now_ms: int
    """Monotonic, for deadlines."""
    time_ms: int
    """Wall clock, for what is written down."""
    can_describe: Callable[[str], bool] = everything_visible
    """Whether whoever asks may know of a topic."""


@dataclass(slots=True)
class Draft:
    """Writes records, and applies each at once to a copy of the group."""

    group: ConsumerGroup
    """As it is with the records so far; the live group itself while there are none."""
    context: GroupContext
    records: list[GroupRecord] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    topics_version: int | None = None
    _is_copy: bool = False

    def write(self, *records: GroupRecord) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        for record in records:
            self.group.apply(record)
        self.records += records

    def write_all(self, records: Iterable[GroupRecord]) -> None:
        self.write(*records)

    def start_timer(
        self, kind: TimerKind, member_id: str, after_ms: int, *, unless_running: bool = False
    ) -> None:
        deadline_ms = self.context.now_ms + after_ms
        self.timers.append(TimerChange(kind, member_id, deadline_ms, unless_running))

    def stop_timer(self, kind: TimerKind, member_id: str) -> None:
        self.timers.append(TimerChange(kind, member_id, None))

    def decision(self, response: R, *, downgraded: ClassicGroupState | None = None) -> Decision[R]:
        return Decision(
            response,
            self.records,
            self.timers,
            self.topics_version,
            self.context.now_ms if self.records else None,
            downgraded,
        )
