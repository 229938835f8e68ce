"""The pytest plugin: `headrace_broker` for the session, `headrace_topic` for each test.

Every xdist worker is a process of its own and so has a broker of its own. Nothing of the
broker is imported until a test asks for it.
"""

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import Broker

TOPIC_NAME_MAX = 200
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def headrace_settings() -> dict[str, str]:
    """Broker configs for `headrace_broker`; override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def headrace_broker(headrace_settings: dict[str, str]) -> "Iterator[Broker]":
    """A running broker, shared by all tests of the session."""
    from headrace.testing.broker import Broker

    with Broker(settings=headrace_settings) as broker:
        yield broker


@pytest.fixture
def headrace_topic(headrace_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, made for this test alone.

    A shared broker that an earlier test left killed, stopped or paused is brought back.
    """
    outage = headrace_broker.outage
    if outage is not None:
        headrace_broker.start()
        headrace_broker.resume()
        warnings.warn(
            f"the shared broker was {outage} and left so; it was brought back for the next topic."
            " A test that ends its broker should have one of its own: with Broker() as broker",
            pytest.PytestWarning,
            stacklevel=1,
        )
    return headrace_broker.create_topic(topic_name(request.node.name))


def topic_name(test_name: str) -> str:
    """A legal topic name that nobody had before, and that tells which test it is of."""
    legal = re.sub(r"[^a-zA-Z0-9._-]+", "-", test_name)[:TOPIC_NAME_MAX].strip("-.")
    return f"{legal or 'test'}-{next(_numbers)}"
