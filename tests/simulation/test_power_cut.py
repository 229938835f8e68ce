"""Cut the power after every single step on the disk; recover; nothing promised may be missing.

The second half turns it round: every sync in the product's source is taken away in turn, and
the same enumeration must then find something missing. A sync whose absence nobody notices is
listed as spare, with the reason why it is there.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Protocol

import pytest

from headrace.core.ids import LeaderEpoch, NodeId
from headrace.metadata import quorum_state, snapshots
from headrace.metadata.image import Image
from headrace.metadata.quorum_state import QuorumState
from tests.simulation.compaction_script import CompactionScript
from tests.simulation.disk import Operation, SimulatedFileSystem
from tests.simulation.inodes import (
    KEEP_CONTENTS,
    KEEP_EVERYTHING,
    KEEP_NAMES,
    LOSE_EVERYTHING,
    NewestNames,
    Seeded,
    Survival,
    Torn,
)
from tests.simulation.log_script import LogScript
from tests.simulation.sync_sites import SyncSite, all_sync_sites

FATES: dict[str, Survival | None] = {
    "kill": None,
    "lose everything": LOSE_EVERYTHING,
    "keep everything": KEEP_EVERYTHING,
    "keep names": KEEP_NAMES,
    "keep contents": KEEP_CONTENTS,
    "torn, zeros behind": Torn(0),
    "torn, garbage behind, names lost": Torn(255, names=False),
    "torn behind the header": Torn(0, part=0.9),
    "newest name only": NewestNames(contents=True),
}
COMPACTION_FATES = {
    "kill": None,
    "lose everything": LOSE_EVERYTHING,
    "keep names": KEEP_NAMES,
    "newest name only": NewestNames(contents=True),
}
# Syncs that no promise depends on, and why they are there.
SPARE = {
    "log/compaction/cleaned.py _write self._file.sync()": "paces write-back; the last one counts",
    "log/compaction/compactor.py run self._files.sync_directory(self._request.directory)": (
        "the names are synced again with the renames that commit them"
    ),
    "log/compaction/swap.py finish_swap files.sync_directory(directory)": (
        "a crash would only finish the replacement once more"
    ),
    "log/compaction/swap.py recover_swaps files.sync_directory(directory)": (
        "a crash would only finish the replacement once more"
    ),
}
SEEDS = 3
LIES_LAST = 25
# Tried in this order on a log without one of its syncs; the first ones find most.
UNKIND: tuple[Survival, ...] = (
    LOSE_EVERYTHING,
    Torn(0, part=0.9, names=False),
    KEEP_NAMES,
    Torn(0),
    NewestNames(contents=True),
    KEEP_CONTENTS,
)


class CrashPoint(Protocol):
    """The disk after one step, with what had been promised by then."""

    @property
    def operation(self) -> Operation: ...

    def problems_after(self, survival: Survival | None) -> list[str]: ...


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recovery says what it cut, thousands of times here."""
    caplog.set_level(logging.CRITICAL)


def points_of_log(skipped: frozenset[str] = frozenset()) -> Sequence[CrashPoint]:
    script = LogScript(skipped)
    script.run()
    return script.points


def points_of_compaction(skipped: frozenset[str] = frozenset()) -> Sequence[CrashPoint]:
    script = CompactionScript(skipped)
    script.run()
    return script.points


def points_of_early_death(skipped: frozenset[str] = frozenset()) -> Sequence[CrashPoint]:
    """A compaction whose process dies between the renaming that commits and its sync."""
    script = CompactionScript(skipped, dies_at=".log.cleaned -> ")
    script.run()
    return script.points


@cache
def log_points() -> Sequence[CrashPoint]:
    return points_of_log()


@cache
def compaction_points() -> Sequence[CrashPoint]:
    return points_of_compaction()


def seeded(seed: int, point: CrashPoint) -> Survival:
    return Seeded(Random(seed * 1_000_003 + point.operation.number))


@pytest.mark.parametrize("fate", list(FATES))
def test_a_crash_after_any_step_loses_nothing_promised(fate: str) -> None:
    assert len(log_points()) > 200
    assert [line for point in log_points() for line in point.problems_after(FATES[fate])] == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_with_any_luck_loses_nothing_promised(seed: int) -> None:
    points = log_points()
    assert [line for p in points for line in p.problems_after(seeded(seed, p))] == []


@pytest.mark.parametrize("fate", list(COMPACTION_FATES))
def test_a_crash_at_any_step_of_a_compaction_loses_no_newest_value(fate: str) -> None:
    points, survival = compaction_points(), COMPACTION_FATES[fate]
    assert len(points) > 200
    assert [line for point in points for line in point.problems_after(survival)] == []


def test_a_power_cut_with_any_luck_in_a_compaction_loses_no_newest_value() -> None:
    points = compaction_points()
    assert [line for p in points for line in p.problems_after(seeded(1, p))] == []


def test_a_kill_before_the_replacement_is_committed_loses_no_newest_value() -> None:
    points = points_of_early_death()
    for survival in (None, LOSE_EVERYTHING, KEEP_NAMES, NewestNames(contents=True)):
        assert [line for p in points for line in p.problems_after(survival)] == []


def notices_without(
    site: SyncSite, points_without: Callable[[frozenset[str]], Sequence[CrashPoint]]
) -> bool:
    """Whether the enumeration finds a broken promise when this one sync does nothing."""
    try:
        points = _points_near_lies(points_without(site.places))
        if any(p.problems_after(survival) for survival in UNKIND for p in points):
            return True
        return any(p.problems_after(seeded(seed, p)) for seed in range(2) for p in points)
    except Exception:
        return True  # it did not even start again


def _points_near_lies(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Crashes soon after a sync that did nothing; later ones cover for it."""
    near: dict[int, CrashPoint] = {}
    for number, point in enumerate(points):
        if not point.operation.honest:
            near.update(enumerate(points[number : number + LIES_LAST], number))
    return list(near.values())


def keeps_quorum_state(site: SyncSite) -> bool:
    disk = _metadata_disk(site)
    state = QuorumState(LeaderEpoch(7), NodeId(0))
    quorum_state.store(disk, "/metadata", state)
    return quorum_state.load(disk.after_power_cut(LOSE_EVERYTHING), "/metadata") == state


def keeps_snapshot(site: SyncSite) -> bool:
    disk = _metadata_disk(site)
    image = Image("cluster")
    snapshots.write_snapshot(disk, "/metadata", image, timestamp_ms=0, log_timestamp_ms=0)
    return bool(snapshots.list_snapshots(disk.after_power_cut(LOSE_EVERYTHING), "/metadata"))


def _metadata_disk(site: SyncSite) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory("/metadata")
    disk.sync_everything()
    disk.faults.skipped_sync_sites = set(site.places)
    return disk


@pytest.mark.parametrize("site", [s for s in all_sync_sites() if str(s) not in SPARE], ids=str)
def test_no_sync_can_be_left_out(site: SyncSite) -> None:
    if site.module == "metadata/quorum_state.py":
        assert not keeps_quorum_state(site)
    elif site.module == "metadata/snapshots.py":
        assert not keeps_snapshot(site)
    elif site.module.startswith("log/compaction/"):
        assert notices_without(site, points_of_compaction) or notices_without(
            site, points_of_early_death
        )
    else:
        assert notices_without(site, points_of_log) or notices_without(site, points_of_compaction)


def test_spare_syncs_exist() -> None:
    assert set(SPARE) <= {str(site) for site in all_sync_sites()}
