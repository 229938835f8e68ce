"""Plans of faults: drawn apart from all else, printed, read back, cut down; and the same again."""

import logging
from random import Random

import pytest

from headrace.log.flush_job import FlushJob
from tests.simulation.faults import Entry, FaultPlan, Kill, LyingDisk, PowerCut, shrink
from tests.simulation.loop import SeededRandomness
from tests.simulation.streams import Streams
from tests.simulation.world import World
from tests.support.history_checks import check


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers that die complain a lot."""
    caplog.set_level(logging.CRITICAL)


def test_a_stream_does_not_feel_what_others_draw() -> None:
    calm, busy = Streams(7), Streams(7)
    for _ in range(100):
        busy("node-1").random()
    for purpose in ("network", "faults", "disk-1", "client-plain"):
        assert busy(purpose).random() == calm(purpose).random()
    assert busy("node-1").random() != calm("node-1").random()
    assert Streams(7)("network").random() != Streams(8)("network").random()


def test_a_product_that_draws_once_more_meets_the_same_faults_and_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> tuple[str, list[bytes]]:
        streams = Streams(5)
        world = World(5, FaultPlan.drawn(streams("faults"), seconds=2.0))
        sent = [send.value for send in world.run().sends if send.producer == "plain"]
        return str(world.plan), sent[:20]

    before = run()
    drawn = 0
    uuid = SeededRandomness.uuid

    def draw_once_more(self: SeededRandomness) -> object:
        nonlocal drawn
        drawn += 1
        self.random()
        return uuid(self)

    monkeypatch.setattr(SeededRandomness, "uuid", draw_once_more)
    assert run() == before
    assert drawn > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_printed_plan_reads_back_as_it_was(seed: int) -> None:
    lie = Entry(0.0, LyingDisk(2))
    plan = FaultPlan.drawn(Random(seed), nodes=3, extra=[lie])
    assert len(plan.entries) > 5
    assert FaultPlan.parse(str(plan)) == plan


def test_a_printed_plan_gives_the_same_history() -> None:
    drawn = World(3, FaultPlan.drawn(Random(3), seconds=5.0))
    printed = World(3, FaultPlan.parse(str(drawn.plan)))
    assert drawn.run().encode() == printed.run().encode()
    assert drawn.events == printed.events


def test_shrinking_leaves_the_entries_that_are_needed_together() -> None:
    plan = FaultPlan.drawn(Random(1), seconds=60.0)
    needed = {plan.entries[3], plan.entries[17], plan.entries[-1]}
    tried = 0

    def fails(candidate: FaultPlan) -> bool:
        nonlocal tried
        tried += 1
        return needed <= set(candidate.entries)

    assert set(shrink(plan, fails).entries) == needed
    assert tried < len(plan.entries) * 2


def test_shrinking_finds_the_power_cut_behind_a_flush_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync = FlushJob.sync

    def claim(job: FlushJob) -> None:
        if "__cluster_metadata" in job.directory:
            sync(job)

    monkeypatch.setattr(FlushJob, "sync", claim)

    def fails(plan: FaultPlan) -> bool:
        return bool(check(World(1, plan).run()))

    kills = tuple(Entry(0.3 * number, Kill(1, 0, 0.1)) for number in range(1, 4))
    cut = Entry(1.4, PowerCut(1, 0, 0.1, 1))
    plan = FaultPlan(2.0, (*kills, cut))
    assert fails(plan)
    assert shrink(plan, fails).entries == (cut,)
