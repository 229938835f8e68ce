"""Commands, decisions, and the two functions that make a replicated state machine.

`decide` reads and never writes; `apply` writes and never refuses. The leader, a new leader and
a restart all run the same `apply` over the same records, so they all agree. States are
immutable values: `apply` returns the next one and leaves the old one to its readers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Reply = TypeVar("Reply")
ReplyOut = TypeVar("ReplyOut", covariant=True)
State = TypeVar("State")
Record = TypeVar("Record")
RecordOut = TypeVar("RecordOut", covariant=True)


class Command(Generic[ReplyOut]):
    """A request to change the state; its type parameter is the type of the reply."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordOut, ReplyOut]):
    """What a command comes to: the records that carry it out, and the reply once they are
    committed.

    No records means that nothing changes: the reply was found in the state, or the command
    was refused.
    """

    reply: ReplyOut
    records: Sequence[RecordOut] = ()


class Machine(Protocol[State, Record]):
    """The pure pair; everything random or clock-bound in a decision is written in its records."""

    def decide(self, state: State, command: Command[Reply]) -> Decision[Record, Reply]:
        """Say what `command` comes to in `state`; raises only for the whole command."""
        ...

    def apply(self, state: State, records: Sequence[Record]) -> State:
        """The state after `records`; must accept whatever `decide` ever returned."""
        ...
