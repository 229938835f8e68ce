"""Our client against Headrace and, unasked, against Apache Kafka: neither may tell a difference."""

import uuid
from collections.abc import Iterator

import pytest

from headrace.client import Client
from tests.support.brokers import ApacheKafka, BrokerProcess, HeadraceProcess
from tests.support.groups import required
from tests.support.topics import Topics

GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
}
"""Members are missed after 3 seconds, as the classic ones of the tests ask for themselves."""

# One worker has Apache Kafka: it takes many seconds to start.
KAFKA = pytest.param("kafka", marks=pytest.mark.xdist_group("client-kafka"))


@pytest.fixture(scope="session", params=["headrace", KAFKA])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker process of each kind for all tests of a worker."""
    data_dir = tmp_path_factory.mktemp(request.param) / "data"
    started: BrokerProcess
    if request.param == "kafka":
        started = required(lambda: ApacheKafka(data_dir, GROUP_SETTINGS))
    else:
        started = HeadraceProcess(data_dir, GROUP_SETTINGS)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def topics(broker: BrokerProcess) -> Topics:
    """Makes topics by another client, so that ours is not its own witness."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A fresh topic with one partition."""
    return topics.create(f"topic-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    """The blocking client."""
    with Client(broker.bootstrap_servers) as opened:
        yield opened
