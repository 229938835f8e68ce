"""SIGKILL under load: what was acknowledged is there, once, in order, whatever moment it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.dump import METADATA, assert_kafka_finds_nothing_wrong
from tests.faults.kill_run import KillRun
from tests.support.brokers import HeadraceProcess
from tests.support.groups import required
from tests.support.headlines import Headline
from tests.support.kafka_tools import KafkaTools
from tests.support.topics import Topics

SETTINGS = {
    # Recovery points move between two kills, so that recovery starts from all kinds of places.
    "log.flush.offset.checkpoint.interval.ms": "150",
}
IDLE_PARTITIONS = 200


def _survives_kills(directory: Path, rounds: int, seed: int) -> KillRun:
    broker = HeadraceProcess(directory / "data", SETTINGS)
    broker.start()
    try:
        # New leader epochs for all of these at each start soon make a metadata snapshot due.
        Topics(broker.bootstrap_servers).create("idle", IDLE_PARTITIONS)
        run = KillRun(broker, seed)
        with run.load():
            for _ in range(rounds):
                run.kill_and_restart()
            run.wait_for_answers(100)
        violations = run.judge(broker.data_dir)
    finally:
        broker.kill()
    assert violations == [], f"replay with HEADRACE_TEST_SEED={seed}"
    assert run.complaints() == []
    said = broker.log_path.read_text()
    assert "Traceback" not in said, said[said.index("Traceback") :][:3000]
    return run


@pytest.mark.xdist_group("kafka")
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    tmp_path: Path, headline: Headline
) -> None:
    tools = required(KafkaTools)
    seed = int(os.environ.get("HEADRACE_TEST_SEED", "20261116"))
    rounds = 200 if os.environ.get("HEADRACE_TEST_LONG") else 20
    run = _survives_kills(tmp_path, rounds, seed)
    headline(f"SIGKILL under load: {run.figures()}, no invariant broken")
    assert_kafka_finds_nothing_wrong(tools, tmp_path / "data")
    assert list((tmp_path / "data" / METADATA).glob("*.checkpoint"))
