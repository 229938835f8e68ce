"""One broker for the group tests of a worker: no initial delay, short heartbeats and sessions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.differential.peer import Peer
from tests.integration.conftest import make_one
from tests.support.brokers import BrokerProcess
from tests.support.group_wire import GroupWire
from tests.support.records import fill
from tests.support.topics import Topics

# What a test waits for is its own business here; the defaults have tests of their own.
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "5",
}
FilledMaker = Callable[[int, int], str]


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    against: str = request.config.getoption("--against")
    started = make_one(against, tmp_path_factory.mktemp("groups") / "data", QUICK_GROUPS)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def filled(broker: BrokerProcess, topics: Topics) -> FilledMaker:
    """Makes topics of so many partitions with so many records in each."""

    def make(partitions: int, records: int) -> str:
        topic = topics.create(f"shared-{uuid.uuid4().hex[:12]}", partitions)
        fill(broker.bootstrap_servers, topic, partitions, records)
        return topic

    return make


@pytest.fixture
def group() -> str:
    """A group id that nobody used."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    """Makes topics and tells their ids."""
    made = Peer(broker)
    yield made
    made.disconnect()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[GroupWire]:
    """Connections that send exactly what a test makes up."""
    made = GroupWire(broker.port)
    yield made
    made.close()
