"""Cut the power after every step a whole broker takes on its disk; clients must miss nothing.

Topics, configs, deleted topics and records, acknowledged records: all as promised, whatever
the step.
"""

import logging
from functools import cache
from random import Random

import pytest

from tests.simulation.inodes import (
    KEEP_CONTENTS,
    KEEP_NAMES,
    LOSE_EVERYTHING,
    Seeded,
    Survival,
    Torn,
)
from tests.simulation.node_script import NodeCrashPoint, NodeScript

OTHER_FATES: tuple[Survival | None, ...] = (
    None,
    KEEP_NAMES,
    KEEP_CONTENTS,
    Torn(0),
    Torn(255, names=False),
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Recovery says what it cut, hundreds of times here."""
    caplog.set_level(logging.CRITICAL)


@cache
def crash_points() -> list[NodeCrashPoint]:
    script = NodeScript()
    script.run()
    return script.points


def seeded(point: NodeCrashPoint) -> Survival:
    return Seeded(Random(point.operation.number))


def test_losing_all_that_was_not_synced_breaks_no_promise() -> None:
    points = crash_points()
    assert len(points) > 100
    assert [line for point in points for line in point.problems_after(LOSE_EVERYTHING)] == []


def test_a_crash_of_any_other_kind_breaks_no_promise() -> None:
    """Each step gets one of the other fates in turn, and every third one a random fate."""
    found: list[str] = []
    for number, point in enumerate(crash_points()):
        found += point.problems_after(OTHER_FATES[number % len(OTHER_FATES)])
        if number % 3 == 0:
            found += point.problems_after(seeded(point))
    assert found == []


@pytest.mark.parametrize("below", ["/data/__cluster_metadata-0", "/data/u-0"])
def test_a_disk_that_does_not_sync_is_found_out(below: str) -> None:
    """Topics or records vanish; at the latest with the power cut within the script itself."""
    script = NodeScript()
    script.stage.machine.disk.faults.ignore_syncs_below = below
    try:
        script.run()
        found = [line for p in script.points[-20:] for line in p.problems_after(LOSE_EVERYTHING)]
    except Exception as error:
        found = [str(error)]
    assert found
