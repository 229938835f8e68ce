"""One Spark session and one broker for all tests here: a JVM takes longer to start than to use."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.testing import Broker
from tests.support.groups import required
from tests.support.tools import java

TopicMaker = Callable[..., str]
Options = Callable[..., dict[str, str]]

# One quick compiler and one collector thread: short work on two cores, started in half the time.
QUICK_DRIVER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests below go to one worker, so that there is one JVM."""
    item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share, on two cores; a task that fails is tried again."""
    required(java)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("headrace-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_DRIVER)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker in this process, shared; tests keep to their own topics."""
    # Records of tests bear times long past, and the tests take longer than retention waits.
    with Broker(settings={"log.retention.ms": -1}) as started:
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """A client of the shared broker."""
    with Client(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def make_topic(broker: Broker) -> TopicMaker:
    """Makes fresh topics: `make_topic(partitions=3)`, `make_topic("name-begins-so")`."""

    def make(prefix: str = "topic", *, partitions: int = 1, **configs: str) -> str:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        return broker.create_topic(name, partitions=partitions, configs=named)

    return make


@pytest.fixture
def topic(make_topic: TopicMaker) -> str:
    """A fresh topic with one partition."""
    return make_topic()


@pytest.fixture
def to(broker: Broker) -> Options:
    """Options for the shared broker: `to(subscribe="t")`; `__` in a name stands for a dot."""

    def options(**given: object) -> dict[str, str]:
        named = {name.replace("__", "."): str(value) for name, value in given.items()}
        return {"kafka.bootstrap.servers": broker.bootstrap_servers, **named}

    return options


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint."""
    return str(tmp_path / "checkpoint")
