"""The broker that real clients talk to: Headrace, or Apache Kafka with `--against kafka`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.brokers import ApacheKafka, BrokerProcess, HeadraceProcess
from tests.support.groups import required
from tests.support.topics import Topics

BrokerMaker = Callable[[Mapping[str, str]], BrokerProcess]


def make_one(against: str, data_dir: Path, settings: Mapping[str, str]) -> BrokerProcess:
    """A broker of the kind that `--against` names, not yet started."""
    if against == "kafka":
        return required(lambda: ApacheKafka(data_dir, settings))
    return HeadraceProcess(data_dir, settings)


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker process shared by all tests of a worker; tests keep to their own topics."""
    against: str = request.config.getoption("--against")
    started = make_one(against, tmp_path_factory.mktemp("broker") / "data", {})
    started.start()
    yield started
    started.stop()


@pytest.fixture
def make_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerMaker]:
    """Brokers of a test's own, not yet started, for tests that set, stop or kill them."""
    against: str = request.config.getoption("--against")
    made: list[BrokerProcess] = []

    def make(settings: Mapping[str, str]) -> BrokerProcess:
        made.append(make_one(against, tmp_path / f"broker-{len(made)}", settings))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture(scope="session")
def topics(broker: BrokerProcess) -> Topics:
    """Makes topics on the shared broker."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A fresh topic with one partition."""
    return topics.create(f"topic-{uuid.uuid4().hex[:12]}")
