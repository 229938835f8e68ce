"""Commands between decision and reply, with the waiting left to the caller.

    decide ──> decided ──append──> in the log, up to an end offset ──commit──> applied, replied
                  └───────────────────────────┴─────────abort─────────> never happened

Commands are decided against the *speculative* state: the committed one plus everything decided
and not yet committed, so two commands in flight cannot both create the same topic. What is decided
between two appends is carried by one batch, and released when the log says that all below the end
offset of that batch is committed. A command that changes nothing still waits for what was decided
before it, because its reply may rest on that.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.machine.interface import Command, Machine, Record, State

Waiter = TypeVar("Waiter")


@dataclass(frozen=True, slots=True)
class PendingBatch(Generic[State, Record, Waiter]):
    """What was decided for one batch: its records, and the state and replies once committed."""

    end_offset: int
    """Of the last batch with records that this rests on, which may be an earlier one."""
    records: Sequence[Record]
    state: State
    replies: Sequence[tuple[Waiter, Any]]


class PendingCommands(Generic[State, Record, Waiter]):
    """Runs one machine on what is committed and what is not; one per leadership.

    `Waiter` is whatever the caller needs to deliver a reply.
    """

    def __init__(self, machine: Machine[State, Record], state: State) -> None:
        self._machine = machine
        self._state = state
        self._speculative = state
        self._records: list[Record] = []
        self._replies: list[tuple[Waiter, Any]] = []
        self._pending: deque[PendingBatch[State, Record, Waiter]] = deque()

    @property
    def state(self) -> State:
        """The committed state."""
        return self._state

    @property
    def speculative(self) -> State:
        """The state once everything decided so far is committed."""
        return self._speculative

    @property
    def decided(self) -> Sequence[Record]:
        """Records that are decided and not yet appended."""
        return self._records

    @property
    def batches_in_flight(self) -> int:
        return len(self._pending)

    @property
    def idle(self) -> bool:
        """Whether nobody waits."""
        return not (self._pending or self._replies)

    def advance(self, speculative: State) -> None:
        """Stand further on in the log, past records that no command decided."""
        self._speculative = speculative

    def decide(self, command: Command[Any], waiter: Waiter) -> None:
        """Decide one command; its records go into the next batch.

        An exception from the machine refuses the command and leaves everything as it was.
        """
        decision = self._machine.decide(self._speculative, command)
        if decision.records:
            self._speculative = self._machine.apply(self._speculative, decision.records)
            self._records += decision.records
        self._replies.append((waiter, decision.reply))

    def appended(self, end_offset: int) -> None:
        """All that is decided is in the log now, which ends at `end_offset`."""
        batch = PendingBatch(end_offset, self._records, self._speculative, self._replies)
        self._records, self._replies = [], []
        self._pending.append(batch)

    def commit(self, offset: int) -> list[PendingBatch[State, Record, Waiter]]:
        """All below `offset` is committed: move the state, return what is released."""
        released: list[PendingBatch[State, Record, Waiter]] = []
        while self._pending and self._pending[0].end_offset <= offset:
            released.append(self._pending.popleft())
        if released:
            self._state = released[-1].state
        return released

    def abort(self) -> list[Waiter]:
        """Forget all that is not committed; return who waits in vain."""
        waiters = [waiter for batch in self._pending for waiter, _ in batch.replies]
        waiters += [waiter for waiter, _ in self._replies]
        self._pending.clear()
        self._records, self._replies = [], []
        self._speculative = self._state
        return waiters
