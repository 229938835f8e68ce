"""The Java client's members, classic and by the new protocol; all cases run in one JVM."""

from __future__ import annotations

import json

import pytest

from tests.support.brokers import BrokerProcess
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools

_STYLES = ("range", "cooperative", "consumer")
_EACH_STYLE = (
    "join, share and leave",
    "static restart",
    "static double",
    "pause and seek",
    "commit sync and async",
    "commit of a removed member",
    "reset rules",
    "pattern",
    "max poll interval",
    "admin",
)
_CASES = (
    *(f"{case} / {style}" for style in _STYLES for case in _EACH_STYLE),
    "live migration",
    "simple group",
    "assignors change by rolling",
)


@pytest.fixture(scope="module")
def outcomes(broker: BrokerProcess) -> dict[str, str | None]:
    """Case to what went wrong, None when nothing did."""
    answer = required(KafkaTools).run_program("GroupCases", broker.bootstrap_servers)
    lines = [json.loads(line) for line in answer.checked().splitlines()]
    assert [line["case"] for line in lines] == list(_CASES), answer.error
    return {line["case"]: line["failure"] for line in lines}


@pytest.mark.xdist_group("java-groups")
@pytest.mark.parametrize("case", _CASES)
def test_the_java_client_shares_work(outcomes: dict[str, str | None], case: str) -> None:
    assert outcomes[case] is None
