"""Decided commands of a replicated machine: what readers see, and when who is answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.machine.interface import Command, Decision, Reply
from headrace.machine.pending_commands import PendingCommands


@dataclass(frozen=True, slots=True)
class Put(Command[bool]):
    """Add a word; answers whether it was new."""

    word: str


class Words:
    """A machine whose state is a set of words and whose records are the words added."""

    def decide(self, state: frozenset[str], command: Command[Reply]) -> Decision[str, Reply]:
        assert isinstance(command, Put)
        if command.word == "":
            raise ValueError("no word")
        new = command.word not in state
        reply: Any = new  # the one command there is answers with a bool
        return Decision(reply, (command.word,) if new else ())

    def apply(self, state: frozenset[str], records: Sequence[str]) -> frozenset[str]:
        return state | frozenset(records)


class Log:
    """Pending commands, and the end of the log that carries them."""

    def __init__(self) -> None:
        self.pending: PendingCommands[frozenset[str], str, int] = PendingCommands(
            Words(), frozenset()
        )
        self.end = 0
        self._waiters = 0

    def decide(self, word: str) -> int:
        """Returns who waits."""
        self._waiters += 1
        self.pending.decide(Put(word), self._waiters)
        return self._waiters

    def append(self) -> int:
        self.end += len(self.pending.decided)
        self.pending.appended(self.end)
        return self.end

    def put(self, word: str) -> int:
        """Decide and append; returns the end offset."""
        self.decide(word)
        return self.append()

    def commit(self, offset: int) -> list[tuple[int, bool]]:
        released = self.pending.commit(offset)
        return [reply for batch in released for reply in batch.replies]


def test_readers_see_nothing_until_it_is_committed() -> None:
    log = Log()
    end = log.put("a")
    assert log.pending.state == frozenset()
    assert log.pending.speculative == {"a"}
    assert log.commit(end) == [(1, True)]
    assert log.pending.state == {"a"}


def test_a_command_is_decided_on_top_of_those_still_in_flight() -> None:
    log = Log()
    log.put("a")
    end = log.put("a")
    assert log.commit(end) == [(1, True), (2, False)]


def test_what_is_decided_between_two_appends_is_released_together() -> None:
    log = Log()
    first, second = log.decide("a"), log.decide("b")
    assert log.pending.decided == ["a", "b"]
    end = log.append()
    assert log.pending.decided == []
    assert log.commit(end - 1) == []
    assert log.commit(end) == [(first, True), (second, True)]


def test_a_command_that_changes_nothing_waits_for_what_its_answer_rests_on() -> None:
    log = Log()
    end = log.put("a")
    assert log.put("a") == end
    assert log.commit(end - 1) == []
    assert log.commit(end) == [(1, True), (2, False)]


def test_a_command_that_changes_nothing_needs_no_commit_of_its_own() -> None:
    log = Log()
    end = log.put("a")
    log.commit(end)
    log.put("a")
    assert log.commit(end) == [(2, False)]


def test_a_refused_command_leaves_everything_as_it_was() -> None:
    log = Log()
    log.decide("a")
    with pytest.raises(ValueError, match="no word"):
        log.decide("")
    assert log.pending.decided == ["a"]
    assert log.pending.speculative == {"a"}
    assert log.commit(log.append()) == [(1, True)]


def test_a_commit_reaches_only_up_to_its_offset_and_may_release_several() -> None:
    log = Log()
    first, _, third = log.put("a"), log.put("b"), log.put("c")
    assert log.commit(first) == [(1, True)]
    assert log.pending.state == {"a"}
    assert log.pending.batches_in_flight == 2
    assert log.commit(third) == [(2, True), (3, True)]
    assert log.pending.idle


def test_what_is_aborted_never_happened() -> None:
    log = Log()
    log.commit(log.put("a"))
    lost = [log.decide("b")]
    log.append()
    lost.append(log.decide("c"))
    assert log.pending.abort() == lost
    assert log.pending.state == log.pending.speculative == {"a"}
    assert log.pending.idle
    assert log.pending.decided == []
    log.end = 1
    assert log.commit(log.put("b")) == [(4, True)]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["wait", "append", "commit", "drop"]))
    )
)
def test_the_state_is_always_what_the_committed_records_make(
    script: list[tuple[str, str]],
) -> None:
    log, committed, appended = Log(), list[str](), list[str]()
    for word, then in script:
        log.decide(word)
        if then in ("append", "commit"):
            appended += log.pending.decided
            log.append()
        if then == "commit":
            log.commit(log.end)
            committed += appended
            appended = []
        elif then == "drop":
            log.pending.abort()
            log.end -= len(appended)
            appended = []
        assert log.pending.state == frozenset(committed)
        expected = {*committed, *appended, *log.pending.decided}
        assert log.pending.speculative == expected
    assert len(set(committed)) == len(committed)
