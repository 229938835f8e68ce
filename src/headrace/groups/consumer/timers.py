"""When members of a group must have shown themselves; kept in memory only.

A restart begins all of them anew: members cannot have been heard while nobody listened.
"""

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """What runs out."""

    SESSION = "its session expired"
    REVOCATION = "it did not give up its partitions within its rebalance timeout"
    JOIN = "it did not rejoin within its rebalance timeout"
    SYNC = "it did not sync within its rebalance timeout"


class TimerChange(NamedTuple):
    """Start a timer anew, or stop it."""

    kind: TimerKind
    member_id: str
    deadline_ms: int | None
    unless_running: bool = False


class Timers:
    """The running timers of one group."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[tuple[str, TimerKind], int] = {}

    def change(self, change: TimerChange) -> None:
        which = (change.member_id, change.kind)
        if change.deadline_ms is None:
            self._deadlines.pop(which, None)
        elif not (change.unless_running and which in self._deadlines):
            self._deadlines[which] = change.deadline_ms

    def forget(self, member_id: str) -> None:
        for kind in TimerKind:
            self._deadlines.pop((member_id, kind), None)

    def clear(self) -> None:
        self._deadlines.clear()

    def deadline_ms(self, kind: TimerKind, member_id: str) -> int | None:
        return self._deadlines.get((member_id, kind))

    def next_deadline_ms(self) -> int | None:
        return min(self._deadlines.values(), default=None)

    def expired(self, now_ms: int) -> list[tuple[str, TimerKind]]:
        """Whose time is over, the longest overdue first; each member once."""
        overdue = sorted(
            (deadline_ms, member_id, kind.name)
            for (member_id, kind), deadline_ms in self._deadlines.items()
            if deadline_ms <= now_ms
        )
        first: dict[str, TimerKind] = {}
        for _, member_id, kind in overdue:
            first.setdefault(member_id, TimerKind[kind])
        return list(first.items())
