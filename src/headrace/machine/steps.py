"""The steps between a command and its reply, with the waiting left to the driver.

    decide ──> pending ──(records appended and committed)──> applied, replied
                  └─────(append or flush failed)───────────> dropped, nothing applied

Commands are decided against the *tentative* state: the committed one plus everything decided
and not yet committed, so two commands in flight cannot both create the same topic. Readers see
only `state`, which moves when the driver reports a commit. A command that changes nothing still
waits for what was decided before it, because its answer may rest on that.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from headrace.machine.shape import Command, Machine, Record, State


@dataclass(frozen=True, slots=True)
class Pending(Generic[State, Record]):
    """A decided command on its way: what to append, and what holds once that is committed."""

    position: int
    """Records decided up to and including this command, counted from the first ever decided."""
    command: Command[Any]
    records: Sequence[Record]
    state: State
    reply: Any


class Steps(Generic[State, Record]):
    """Runs one machine; holds its committed state and the line of decided commands."""

    def __init__(self, machine: Machine[State, Record], state: State) -> None:
        self._machine = machine
        self._state = state
        self._tentative = state
        self._decided = 0
        self._pending: deque[Pending[State, Record]] = deque()

    @property
    def state(self) -> State:
        """The committed state."""
        return self._state

    @property
    def tentative(self) -> State:
        """The state once everything decided so far is committed."""
        return self._tentative

    @property
    def pending(self) -> int:
        return len(self._pending)

    def decide(self, command: Command[Any]) -> Pending[State, Record]:
        """Decide one command and put it at the end of the line.

        An exception from the machine refuses the command and leaves the line as it was.
        """
        decision = self._machine.decide(self._tentative, command)
        if decision.records:
            self._tentative = self._machine.apply(self._tentative, decision.records)
            self._decided += len(decision.records)
        entry = Pending(self._decided, command, decision.records, self._tentative, decision.reply)
        self._pending.append(entry)
        return entry

    def commit(self, position: int | None = None) -> list[Pending[State, Record]]:
        """Everything up to `position` is committed: move the state, return who gets a reply.

        Without a position, everything decided so far.
        """
        done: list[Pending[State, Record]] = []
        limit = self._decided if position is None else position
        while self._pending and self._pending[0].position <= limit:
            done.append(self._pending.popleft())
        if done:
            self._state = done[-1].state
        return done

    def drop(self) -> list[Pending[State, Record]]:
        """Forget all that is decided and not committed; return whom to disappoint."""
        dropped = list(self._pending)
        self._pending.clear()
        self._tentative = self._state
        self._decided = dropped[0].position - len(dropped[0].records) if dropped else self._decided
        return dropped
