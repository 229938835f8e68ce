"""A pytest plugin for Karapace's REST tests: its fixtures, with a running broker behind them.

It runs in the environment of that suite, which is collected without its own conftest files: those
start Apache Kafka and Karapace. What needs more than the HTTP API is skipped with the reason.
Where avro is only what a test takes by default it takes JSON. Outcomes are written to a file as
JSON, one line for each test.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BOOTSTRAP = os.environ["REST_PROXY_BOOTSTRAP"]
URL = os.environ["REST_PROXY_URL"]
OUTCOMES = Path(os.environ["REST_PROXY_OUTCOMES"])


def _stand_in(name: str, **attributes: object) -> None:
    """For a module that Karapace's build makes, and that no test here has a use for."""
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules.setdefault(name, module)


_stand_in("karapace.version", __version__="0")
_stand_in(
    "karapace.core.protobuf.protopace.protopace",  # a library in Go, for schemas
    check_compatibility=None,
    format_proto=None,
    IncompatibleError=Exception,
    Proto=object,
)


def pytest_collection_finish() -> None:
    utils = import_module("tests.utils")  # of the checkout
    utils.consumer_valid_payload["format"] = "json"
    utils.new_consumer.__defaults__ = ("json", "", None)


@pytest.fixture
def admin_client() -> Any:
    from karapace.core.kafka.admin import KafkaAdminClient  # type: ignore[import-not-found]  # there only

    return KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


@pytest.fixture
def producer() -> Any:
    from karapace.core.kafka.producer import KafkaProducer  # type: ignore[import-not-found]  # there only

    return KafkaProducer(bootstrap_servers=BOOTSTRAP)


@pytest.fixture
async def rest_async_client(loop: Any) -> AsyncIterator[Any]:  # noqa: ARG001 - it must be running
    from karapace.core.client import Client  # type: ignore[import-not-found]  # there only

    client = Client(server_uri=URL)
    yield client
    await client.close()


@pytest.fixture
def registry_async_client() -> None:
    pytest.skip("needs a schema registry")


@pytest.fixture
def rest_async_novalidation_client() -> None:
    pytest.skip("needs a schema registry")


@pytest.fixture
def rest_async() -> None:
    pytest.skip("looks into Karapace's own objects")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    if report.when == "teardown" and report.outcome != "failed":
        return
    name = report.nodeid.partition("::")
    test = f"{name[0].rpartition('/')[2]}::{name[2]}"
    reason = ""
    if report.outcome != "passed":
        told = report.longrepr
        crash = getattr(told, "reprcrash", None)
        if crash is not None:
            told = crash.message
        reason = str(told[2] if isinstance(told, tuple) else told)
    with OUTCOMES.open("a") as file:
        file.write(json.dumps({"test": test, "outcome": report.outcome, "reason": reason}) + "\n")
