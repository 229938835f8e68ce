"""Groups over coordinators that move: nothing is broken, and what is broken on purpose is found.

`HEADRACE_PURE_SEEDS=0:100000` runs others than the usual seeds; a seed that fails is printed with
its plan, and `python -m tests.simulation.pure SEED --shrink` leaves of it what is needed to fail.
"""

import logging
import os
from typing import Any

import pytest

from headrace.groups.records import GroupRecord
from headrace.groups.shard import GroupShard
from headrace.groups.stored_offsets import StoredOffset
from tests.simulation.faults import FaultPlan, shrink
from tests.simulation.pure.group_run import IMAGE, SETTINGS, GroupRun, NewProgram, honest
from tests.simulation.pure.kernel import NodeContext
from tests.simulation.pure.shards import Leadership, ShardProgram

FIRST, _, LAST = os.environ.get("HEADRACE_PURE_SEEDS", "0:60").partition(":")
SEEDS = range(int(FIRST), int(LAST))
SEEDS_UNTIL_FOUND = 60


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_no_faults_break_a_promise() -> None:
    elections = commits = tenures = 0
    for seed in SEEDS:
        run = GroupRun(seed)
        assert run.run() == [], run
        elections += run.elections.leadership.epoch
        commits += sum(commit.ok for commit in run.history.commits)
        tenures += len(run.history.tenures)
    count = len(SEEDS)
    assert elections > 2 * count
    assert commits > 10 * count
    assert tenures > 4 * count


@pytest.mark.parametrize("seed", [2, 3])
def test_the_same_seed_or_its_printed_plan_gives_the_same_history(seed: int) -> None:
    first = GroupRun(seed)
    first.run()
    for plan in (None, FaultPlan.parse(str(first.plan))):
        again = GroupRun(seed, plan)
        again.run()
        assert repr(again.history) == repr(first.history)
        assert again.kernel.events == first.kernel.events


# What is broken on purpose must be found.


class RepliesAtOnce(ShardProgram):
    """Does not wait for the commit."""

    def _reply_at(self, _end: int, to: object, value: Any) -> None:
        self._send(to, value)


class GoesOnLeading(ShardProgram):
    """What it has flushed counts as committed, whoever leads by now."""

    def flushed(self, end: int) -> None:
        self.epoch = self._leadership.epoch
        super().flushed(end)


class ForgetsTombstones(GroupShard):
    """A load does not see what was deleted."""

    def replay(self, record: GroupRecord | StoredOffset, producer_id: int = -1) -> None:
        if isinstance(record, StoredOffset) or record.value is not None:
            super().replay(record, producer_id)


class ForgetsOffsets(GroupShard):
    """A load sees nothing of one partition."""

    def replay(self, record: GroupRecord | StoredOffset, producer_id: int = -1) -> None:
        if not (isinstance(record, StoredOffset) and record.partition.partition == 1):
            super().replay(record, producer_id)


def program(kind: type[ShardProgram]) -> NewProgram:
    return lambda node, leadership: kind(node, leadership, SETTINGS, IMAGE)


def with_shard(kind: type[GroupShard]) -> NewProgram:
    def build(node: NodeContext, leadership: Leadership) -> ShardProgram:
        return ShardProgram(node, leadership, SETTINGS, IMAGE, new_shard=kind)

    return build


@pytest.mark.parametrize(
    ("broken", "invariants"),
    [
        (program(RepliesAtOnce), {"I14"}),
        (program(GoesOnLeading), {"I14", "I15", "replay"}),
        (with_shard(ForgetsTombstones), {"replay"}),
        (with_shard(ForgetsOffsets), {"I14", "replay"}),
    ],
    ids=["replies before the commit", "goes on leading", "forgets tombstones", "forgets offsets"],
)
def test_a_broken_coordinator_is_found_out(broken: NewProgram, invariants: set[str]) -> None:
    for seed in range(SEEDS_UNTIL_FOUND):
        found = {violation.invariant for violation in failing(GroupRun(seed, new_program=broken))}
        if found & invariants:
            return
    raise AssertionError(f"{SEEDS_UNTIL_FOUND} seeds have not found it")


def test_a_failing_plan_is_cut_down_to_what_it_needs() -> None:
    """Of a dozen faults only those that make another node lead are left."""
    broken = with_shard(ForgetsOffsets)
    seed = next(s for s in range(SEEDS_UNTIL_FOUND) if failing(GroupRun(s, new_program=broken)))
    plan = GroupRun(seed).plan

    def fails(tried: FaultPlan) -> bool:
        return bool(failing(GroupRun(seed, tried, new_program=broken)))

    smallest = shrink(plan, fails)
    assert len(smallest.entries) < len(plan.entries) / 2
    assert fails(smallest)
    assert not GroupRun(seed, smallest, new_program=honest).run()


def failing(run: GroupRun) -> list[Any]:
    return run.run()
