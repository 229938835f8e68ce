"""The steps of a replicated machine: what readers see, and when who is answered."""

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


def steps() -> PendingCommands[frozenset[str], str]:
    return PendingCommands(Words(), frozenset())


def test_readers_see_nothing_until_it_is_committed() -> None:
    words = steps()
    pending = words.decide(Put("a"))
    assert words.state == frozenset()
    assert words.speculative == {"a"}
    assert [done.reply for done in words.commit(pending.position)] == [True]
    assert words.state == {"a"}


def test_a_command_is_decided_on_top_of_those_still_in_flight() -> None:
    words = steps()
    words.decide(Put("a"))
    assert words.decide(Put("a")).reply is False


def test_a_command_that_changes_nothing_waits_for_what_its_answer_rests_on() -> None:
    words = steps()
    words.decide(Put("a"))
    words.decide(Put("a"))
    assert words.commit(0) == []
    assert [done.reply for done in words.commit(1)] == [True, False]


def test_a_command_that_changes_nothing_needs_no_commit_of_its_own() -> None:
    words = steps()
    words.decide(Put("a"))
    words.commit()
    unchanged = words.decide(Put("a"))
    assert unchanged.records == ()
    assert words.commit(1) == [unchanged]


def test_a_refused_command_leaves_the_line_as_it_was() -> None:
    words = steps()
    words.decide(Put("a"))
    with pytest.raises(ValueError, match="no word"):
        words.decide(Put(""))
    assert words.pending == 1
    assert words.speculative == {"a"}


def test_a_commit_reaches_only_up_to_its_position() -> None:
    words = steps()
    first, second = words.decide(Put("a")), words.decide(Put("b"))
    assert words.commit(first.position) == [first]
    assert words.state == {"a"}
    assert words.commit(second.position) == [second]


def test_what_is_dropped_never_happened() -> None:
    words = steps()
    words.decide(Put("a"))
    words.commit()
    lost = words.decide(Put("b"))
    assert words.abort_uncommitted() == [lost]
    assert words.state == words.speculative == {"a"}
    again = words.decide(Put("b"))
    assert again.reply is True
    assert again.position == lost.position


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["wait", "commit", "drop"]))))
def test_the_state_is_always_what_the_committed_records_make(
    script: list[tuple[str, str]],
) -> None:
    words, records = steps(), list[str]()
    for word, then in script:
        words.decide(Put(word))
        if then == "commit":
            for done in words.commit():
                records += done.records
        elif then == "drop":
            words.abort_uncommitted()
        assert words.state == Words().apply(frozenset(), records)
        assert words.state <= words.speculative
