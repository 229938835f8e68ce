"""The Java client against a broker process; all cases run in one JVM, each is a test of its own."""

from __future__ import annotations

import json

import pytest

from tests.support.brokers import BrokerProcess
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools
from tests.support.topics import CODECS

_CASES = (
    *(f"records come back {codec}" for codec in CODECS),
    "idempotent order",
    "large message",
    "too large is refused",
    "large batches are split",
    "record without key on a compacted topic",
    "seek by time",
    "delete records",
    "configs",
    "topic made again",
    "created topic tells its configs",
    "described topic",
    "new partitions",
    "cluster and log directories",
    "list offsets",
    "producers are described",
    "many partitions in one session",
)
_NOT_AGAINST_KAFKA = ("transactions fail at once",)


@pytest.fixture(scope="module")
def outcomes(broker: BrokerProcess, request: pytest.FixtureRequest) -> dict[str, str | None]:
    """Case to what went wrong, None when nothing did."""
    against_kafka = request.config.getoption("--against") == "kafka"
    wanted = _CASES if against_kafka else (*_CASES, *_NOT_AGAINST_KAFKA)
    answer = required(KafkaTools).run_program("ClientCases", broker.bootstrap_servers, *wanted)
    lines = [json.loads(line) for line in answer.checked().splitlines()]
    assert [line["case"] for line in lines] == list(wanted), answer.error
    return {line["case"]: line["failure"] for line in lines}


@pytest.mark.xdist_group("java")
@pytest.mark.parametrize("case", [*_CASES, *_NOT_AGAINST_KAFKA])
def test_the_java_client_is_served(outcomes: dict[str, str | None], case: str) -> None:
    if case not in outcomes:
        pytest.skip("Kafka has transactions")
    assert outcomes[case] is None
