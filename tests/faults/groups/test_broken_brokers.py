"""Brokers that are broken on purpose, and the invariant by which each of them is found out.

Only what the broker does is changed, never what members and bystanders write down; the same run
with the same kills and an unbroken broker finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from headrace.coordinator.partition_writer import PartitionWriter, send_replies
from headrace.coordinator.result import EncodedRecord, PendingReply
from headrace.groups.classic import expiry, syncing
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.offsets import CommittedOffsets
from headrace.groups.result import GroupResult
from headrace.groups.shard import GroupShard
from headrace.testing import Broker
from tests.faults.groups.group_run import BROKER_SETTINGS, SESSION_MS, GroupRun

RUNS = 4
Break = Callable[[pytest.MonkeyPatch], None]


def nothing(_: pytest.MonkeyPatch) -> None:
    """An unbroken broker."""


def answer_without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups live in memory only: a commit is acknowledged and never reaches the log."""

    def write(
        _: PartitionWriter, __: Iterable[EncodedRecord], answers: Sequence[PendingReply], ___: int
    ) -> None:
        send_replies(list(answers))

    monkeypatch.setattr(PartitionWriter, "write", write)


def forget_offsets_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = GroupShard.loaded

    def loaded(self: GroupShard, result: GroupResult) -> None:
        self.offsets = CommittedOffsets()
        sound(self, result)

    monkeypatch.setattr(GroupShard, "loaded", loaded)


def give_everybody_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """All members get the share of one of them."""
    sound = syncing._assign

    def assign(group: ClassicGroup, shares: dict[str, bytes], result: GroupResult) -> None:
        first = max(shares.values(), default=b"")
        sound(group, dict.fromkeys(group.members, first), result)

    monkeypatch.setattr(syncing, "_assign", assign)


def let_nobody_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead stay members for ever."""
    sound = expiry.expire

    def expire(group: ClassicGroup, result: GroupResult) -> None:
        for member in group.members.values():
            member.deadline_ms = result.now_ms + 60_000
        sound(group, result)

    monkeypatch.setattr(expiry, "expire", expire)


@pytest.mark.xdist_group("group-breaks")
@pytest.mark.parametrize(
    ("broken", "style", "invariant"),
    [
        (nothing, "eager", None),
        (answer_without_writing, "eager", "I14"),
        (forget_offsets_at_a_start, "eager", "I14"),
        (give_everybody_the_same, "eager", "I15"),
        (let_nobody_expire, "eager", "I17"),
    ],
)
def test_a_broken_broker_is_found_out(
    tmp_path: Path,
    broken: Break,
    style: str,
    invariant: str | None,
) -> None:
    if invariant is None:
        assert _found(tmp_path, broken, style, 1, bound_seconds=20) == set()
        return
    # Where exactly a kill meets the group is chance: some of them do no harm.
    assert any(
        invariant in _found(tmp_path / str(seed), broken, style, seed, bound_seconds=3)
        for seed in range(1, RUNS + 1)
    )


def _found(
    directory: Path, broken: Break, style: str, seed: int, *, bound_seconds: float
) -> set[str]:
    """The invariants that a short run violates."""
    directory.mkdir(exist_ok=True)
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        Broker(data_dir=directory / "data", settings=BROKER_SETTINGS) as broker,
    ):
        run = GroupRun(broker, style, seed, directory, bound_seconds=bound_seconds)
        broken(monkeypatch)
        with run.work():
            if broken is not let_nobody_expire:
                with run.a_member_stands_still() as still:
                    run.pause(SESSION_MS / 1000 + 0.3)
                    run.wait_for_commits(3, besides=still)
                run.kill_broker()
            run.kill_a_member()
            if broken is not let_nobody_expire:  # where the others wait for the dead for ever
                run.wait_for_commits(2)
        return {each.invariant for each in run.judge()}
