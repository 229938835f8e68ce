"""What the keys about log lines change, seen in the lines of a broker process."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.client import (
    Client,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
)
from tests.support.brokers import HeadraceProcess
from tests.support.config_effects import effect_of


def lines_of(directory: Path, **settings: str) -> list[str]:
    """What a broker writes while a client writes one record."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    broker = HeadraceProcess(directory / "data", named)
    broker.start()
    try:
        with Client(broker.bootstrap_servers) as client, client.producer() as producer:
            producer.send("orders", b"x").result()
    finally:
        assert broker.stop() == 0
    return broker.log_path.read_text().splitlines()


def objects_of(directory: Path, **settings: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines_of(directory, logging_format="json", **settings)]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in found)
    return found


@effect_of("logging.format")
def test_lines_are_for_people_or_for_programs(tmp_path: Path) -> None:
    [stopping] = [line for line in lines_of(tmp_path / "text") if line.endswith("stopping")]
    assert " INFO " in stopping
    [said] = [line for line in objects_of(tmp_path / "json") if line["message"] == "stopping"]
    assert (said["level"], said["logger"]) == ("info", "headrace.cli.serve")


@effect_of("logging.level")
@pytest.mark.parametrize(
    ("levels", "stopping", "requests"),
    [("info", 1, False), ("error", 0, False), ("error,headrace.broker.metering=debug", 0, True)],
)
def test_the_level_decides_what_is_written(
    tmp_path: Path, levels: str, stopping: int, requests: bool
) -> None:
    found = objects_of(tmp_path, logging_level=levels)
    assert "ready on" in next(line["text"] for line in found if "text" in line), "at any level"
    assert len([line for line in found if line["message"] == "stopping"]) == stopping
    assert bool([line for line in found if line["message"] == "request"]) is requests


@effect_of("request.log.slow.ms")
def test_requests_slower_than_asked_for_are_told(tmp_path: Path) -> None:
    for bound, told in (("0", True), ("600000", False), ("-1", False)):
        found = objects_of(tmp_path / bound, request_log_slow_ms=bound)
        assert bool([line for line in found if line["message"] == "slow request"]) is told


def test_the_bound_of_slow_requests_changes_while_the_broker_runs(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data", {"logging.format": "json"})
    broker.start()
    with Client(broker.bootstrap_servers) as client:
        change = ConfigChange("request.log.slow.ms", "0")
        client.admin.alter_configs({ConfigResource(ConfigResourceType.BROKER, ""): [change]})
        client.admin.describe_cluster()
    assert broker.stop() == 0
    assert '"message": "slow request", "api": "DescribeCluster"' in broker.log_path.read_text()
