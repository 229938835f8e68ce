"""The HTTP API in both forms: every test runs against each of them."""

import re
from collections.abc import Iterator

import httpx
import pytest

from headrace.testing.plugin import topic_name
from tests.support.web import FORMS, Web, web_of_form


@pytest.fixture(scope="session", params=FORMS)
def web(request: pytest.FixtureRequest) -> Iterator[Web]:
    with web_of_form(request.param) as found:
        yield found


@pytest.fixture
def http(web: Web) -> Iterator[httpx.Client]:
    with web.client() as client:
        yield client


@pytest.fixture
def topic(web: Web, request: pytest.FixtureRequest) -> str:
    """A new topic with three partitions."""
    name = re.sub(r"[^a-z_]", "-", request.node.name)
    return web.broker.create_topic(topic_name(name), partitions=3)


@pytest.fixture
def group(topic: str) -> str:
    """A group that nobody used before."""
    return f"group-of-{topic}"
