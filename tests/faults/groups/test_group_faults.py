"""Brokers and members that die or stand still: nobody misses a record, nobody owns another's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.groups.group_run import BROKER_SETTINGS, SESSION_MS, GroupRun
from tests.integration.conftest import make_one
from tests.support.brokers import BrokerProcess
from tests.support.group_log import check_group_log
from tests.support.group_members import STYLES
from tests.support.headlines import Headline

ROUNDS = 20 if os.environ.get("HEADRACE_TEST_LONG") else 1
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "20261116"))


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    against: str = request.config.getoption("--against")
    made = make_one(against, tmp_path / "data", BROKER_SETTINGS)
    made.start()
    yield made
    made.kill()


@pytest.mark.xdist_group("group-faults")
@pytest.mark.parametrize("style", STYLES)
def test_a_group_survives_kills_and_stops(
    broker: BrokerProcess, tmp_path: Path, style: str, headline: Headline
) -> None:
    run = GroupRun(broker, style, SEED, tmp_path)
    with run.work():
        for _ in range(ROUNDS):
            run.kill_broker_in_a_rebalance()
            run.wait_for_commits(5)
            run.kill_a_member()
            run.kill_broker()  # in the middle of somebody's commit, more often than not
            run.wait_for_commits(5)
            with run.a_member_stands_still() as still:
                run.pause(SESSION_MS / 1000 + 0.3)
                run.wait_for_commits(10, besides=still)
            run.wait_for_commits(5)
    assert run.judge() == [], f"replay with HEADRACE_TEST_SEED={SEED}"
    broker.stop()
    log = check_group_log(broker.data_dir)
    assert log.violations == [], f"replay with HEADRACE_TEST_SEED={SEED}"
    assert log.generations > 3
    said = broker.log_path.read_text()
    assert "Traceback" not in said, said[said.index("Traceback") :][:3000]
    assert run.history.final is not None
    headline(
        f"group faults, {style}: {run.kills} kills of the broker, {run.history.figures()}, "
        f"{log.generations} generations stored, settled in "
        f"{run.history.final.settled_seconds:.1f} s, no invariant broken"
    )
