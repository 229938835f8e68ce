"""Commands between decision and reply, with the waiting left to the caller.

    decide ──> pending ──(records appended and committed)──> applied, replied
                  └─────(append or flush failed)───────────> aborted, nothing applied

Commands are decided against the *speculative* state: the committed one plus everything decided
and not yet committed, so two commands in flight cannot both create the same topic. Readers see
only `state`, which moves when the caller reports a commit. A command that changes nothing still
waits for what was decided before it, because its reply may rest on that.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from headrace.machine.interface import Command, Machine, Record, State


@dataclass(frozen=True, slots=True)
class PendingCommand(Generic[State, Record]):
    """A decided command: what to append, and the state and reply once that is committed."""

    position: int
    """Records decided up to and including this command, counted from the first ever decided."""
    command: Command[Any]
    records: Sequence[Record]
    state: State
    reply: Any


class PendingCommands(Generic[State, Record]):
    """Runs one machine; holds its committed state and the queue of decided commands."""

    def __init__(self, machine: Machine[State, Record], state: State) -> None:
        self._machine = machine
        self._state = state
        self._speculative = state
        self._decided = 0
        self._pending: deque[PendingCommand[State, Record]] = deque()

    @property
    def state(self) -> State:
        """The committed state."""
        return self._state

    @property
    def speculative(self) -> State:
        """The state once everything decided so far is committed."""
        return self._speculative

    @property
    def pending(self) -> int:
        return len(self._pending)

    def decide(self, command: Command[Any]) -> PendingCommand[State, Record]:
        """Decide one command and put it at the end of the queue.

        An exception from the machine refuses the command and leaves the queue as it was.
        """
        decision = self._machine.decide(self._speculative, command)
        if decision.records:
            self._speculative = self._machine.apply(self._speculative, decision.records)
            self._decided += len(decision.records)
        entry = PendingCommand(
            self._decided, command, decision.records, self._speculative, decision.reply
        )
        self._pending.append(entry)
        return entry

    def commit(self, position: int | None = None) -> list[PendingCommand[State, Record]]:
        """Everything up to `position` is committed: move the state, return who gets a reply.

        Without a position, everything decided so far.
        """
        done: list[PendingCommand[State, Record]] = []
        limit = self._decided if position is None else position
        while self._pending and self._pending[0].position <= limit:
            done.append(self._pending.popleft())
        if done:
            self._state = done[-1].state
        return done

    def abort_uncommitted(self) -> list[PendingCommand[State, Record]]:
        """Forget all that is decided and not committed; return it, so that callers get errors."""
        dropped = list(self._pending)
        self._pending.clear()
        self._speculative = self._state
        self._decided = dropped[0].position - len(dropped[0].records) if dropped else self._decided
        return dropped
