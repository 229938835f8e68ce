"""Judges the history of a group against invariants I13 to I17.

Nobody resets offsets and nothing is compacted in such a run, so committed offsets only grow and
the offsets that one member reads of one partition have no gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.support.group_history import Commit, GroupHistory, Partition, Tenure
from tests.support.history_checks import Violation


def check_group(history: GroupHistory) -> list[Violation]:
    """All violations of one group's history."""
    return [
        *_poll_contiguity(history),
        *_resumes_at_the_commit(history),
        *_commits_never_regress(history),
        *_one_owner(history),
        *_bounds_in_order(history),
        *_everything_is_read(history),
    ]


def _poll_contiguity(history: GroupHistory) -> Iterator[Violation]:
    for tenure in history.tenures:
        for before, after in zip(tenure.offsets, tenure.offsets[1:], strict=False):
            if after != before + 1:
                yield _bad("I13", tenure, f"read {after} after {before}")


def _resumes_at_the_commit(history: GroupHistory) -> Iterator[Violation]:
    commits = _by_partition(history)
    for tenure in history.tenures:
        if not tenure.offsets:
            continue
        start = tenure.offsets[0]
        mine = commits[tenure.partition]
        # A commit that came while this member was already reading does not move it.
        known = [each.offset for each in mine if each.ok and each.ended < tenure.began]
        possible = [each.offset for each in mine if each.began < tenure.ended]
        if start < max(known, default=0):
            yield _bad("I14", tenure, f"began at {start}, but {max(known)} was committed before")
        if start > max(possible, default=0):
            yield _bad("I13", tenure, f"began at {start}, nobody committed that far")


def _commits_never_regress(history: GroupHistory) -> Iterator[Violation]:
    commits = _by_partition(history)
    newest: dict[Partition, tuple[int, int]] = {}
    for seen in sorted(history.observed, key=lambda each: each.began):
        known = [
            each.offset for each in commits[seen.partition] if each.ok and each.ended < seen.began
        ]
        if seen.offset < max(known, default=-1):
            yield Violation(
                "I14", f"{seen.partition}: {max(known)} was committed, then {seen.offset} was told"
            )
        attempted = [each.offset for each in commits[seen.partition] if each.began < seen.ended]
        if seen.offset > max(attempted, default=-1):
            yield Violation("I14", f"{seen.partition}: {seen.offset} was told, nobody sent that")
        ended, offset = newest.get(seen.partition, (0, -1))
        if ended < seen.began and seen.offset < offset:
            yield Violation("I14", f"{seen.partition}: {offset} was told, and later {seen.offset}")
        if seen.offset >= offset:
            newest[seen.partition] = (seen.ended, seen.offset)


def _one_owner(history: GroupHistory) -> Iterator[Violation]:
    """Once a member's commit was taken, nobody who was there before may commit.

    What members believe proves little: one that stood still learns late that it was to have a
    partition, when another has long had it. A commit that was taken shows who the owner is.
    """
    commits = _by_partition(history)
    for tenure in history.tenures:
        mine = [
            each.ended
            for each in commits[tenure.partition]
            if each.ok
            and each.member == tenure.member
            and tenure.began <= each.began <= tenure.ended
        ]
        for commit in commits[tenure.partition]:
            late = commit.ok and commit.member != tenure.member and mine
            if late and commit.began > min(mine) and not _holds_again(history, commit, tenure):
                yield _bad("I15", tenure, f"{commit.member} committed {commit.offset} all the same")


def _holds_again(history: GroupHistory, commit: Commit, after: Tenure) -> bool:
    return any(
        each.member == commit.member
        and each.partition == commit.partition
        and after.began < each.began < commit.began
        for each in history.tenures
    )


def _bounds_in_order(history: GroupHistory) -> Iterator[Violation]:
    highest: defaultdict[Partition, int] = defaultdict(int)
    for each in history.bounds:
        if not 0 <= each.earliest <= each.last_stable <= each.high_watermark:
            yield Violation("I16", f"{each.partition}: not in order: {each}")
        if each.high_watermark < highest[each.partition]:
            yield Violation("I16", f"{each.partition}: the high watermark went back: {each}")
        highest[each.partition] = max(highest[each.partition], each.high_watermark)
        if history.final is not None:
            expected = _first_at(history.final.timestamps[each.partition], each.asked_timestamp)
            if each.found != expected:
                yield Violation("I16", f"{each.partition}: {expected} is the offset: {each}")


def _first_at(timestamps: Sequence[int], asked: int) -> int:
    """The first record at this time or later, -1 for none."""
    return next((offset for offset, at in enumerate(timestamps) if at >= asked), -1)


def _everything_is_read(history: GroupHistory) -> Iterator[Violation]:
    final = history.final
    if final is None:
        yield Violation("I17", "the run did not come to its end")
        return
    seen: defaultdict[Partition, set[int]] = defaultdict(set)
    for tenure in history.tenures:
        seen[tenure.partition].update(tenure.offsets)
    for partition, timestamps in final.timestamps.items():
        unseen = set(range(len(timestamps))) - seen[partition]
        if unseen:
            yield Violation("I17", f"{partition}: {len(unseen)} unseen, first {min(unseen)}")
        if partition not in final.owners:
            yield Violation("I17", f"{partition} has no owner in the end")
    if final.settled_seconds > final.bound_seconds:
        yield Violation("I17", f"settled after {final.settled_seconds:.1f} s")


def _by_partition(history: GroupHistory) -> defaultdict[Partition, list[Commit]]:
    found: defaultdict[Partition, list[Commit]] = defaultdict(list)
    for commit in history.commits:
        found[commit.partition].append(commit)
    return found


def _bad(invariant: str, tenure: Tenure, message: str) -> Violation:
    return Violation(invariant, f"{tenure.member} with {tenure.partition}: {message}")
